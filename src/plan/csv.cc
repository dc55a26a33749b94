#include <fstream>

#include "base/error.h"
#include "plan/measured.h"

namespace myriad {

namespace {

// One record, which may hold line ends inside quotes; false at the end.
bool next_record(std::istream& in, std::vector<std::string>& fields) {
  fields.assign(1, "");
  bool quoted = false, any = false;
  for (int c; (c = in.get()) != EOF;) {
    any = true;
    const char x = static_cast<char>(c);
    if (quoted) {
      if (x != '"') {
        fields.back() += x;
      } else if (in.peek() == '"') {
        fields.back() += static_cast<char>(in.get());
      } else {
        quoted = false;
      }
    } else if (x == '"') {
      quoted = true;
    } else if (x == ',') {
      fields.emplace_back();
    } else if (x == '\n') {
      return true;
    } else if (x != '\r') {
      fields.back() += x;
    }
  }
  return any;
}

}  // namespace

std::vector<std::map<std::string, std::string>> read_csv(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw Error("cannot be opened", file, "a file of measurements (CSV)");
  std::vector<std::string> header, fields;
  std::vector<std::map<std::string, std::string>> rows;
  for (int record = 1; next_record(in, fields); ++record) {
    if (header.empty()) {
      header = fields;
      continue;
    }
    if (fields.size() == 1 && fields[0].empty()) continue;
    if (fields.size() != header.size()) {
      throw Error(fmt::format("record {} has {} fields, the header {}", record, fields.size(),
                              header.size()),
                  file);
    }
    auto& row = rows.emplace_back();
    for (size_t i = 0; i < header.size(); ++i) row[header[i]] = fields[i];
  }
  if (header.empty()) throw Error("is empty", file);
  return rows;
}

}  // namespace myriad
