// The report: one HTML file that needs nothing else.
#pragma once

#include <filesystem>
#include <string>

#include "report/run_files.h"

namespace myriad {

std::string report_html(const RunFiles& run);
// Reads the folder and writes FOLDER/report.html. Throws Error or Failure.
std::filesystem::path write_report(const std::filesystem::path& folder);

std::string compare_html(const RunFiles& a, const RunFiles& b);
// For a terminal: configuration keys that differ, final figures.
std::string compare_text(const RunFiles& a, const RunFiles& b);

// The whole page: head with style, body, data and script.
std::string page_html(const std::string& title, const std::string& body,
                      const nlohmann::json& data);

// A final figure of a run by which two are compared; NaN if it is not there.
struct FinalFigure {
  std::string name;
  double value;
  std::string shown;
};
std::vector<FinalFigure> final_figures(const RunFiles& run);

// All curves of one run, or of two over each other.
std::string curves_html(const std::vector<const RunFiles*>& runs, nlohmann::json& data);

}  // namespace myriad
