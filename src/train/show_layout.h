// Where everything lies, as text for people that reads back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/plan.h"
#include "ir/program.h"

namespace myriad {

// The mesh, the rules of wanted layouts, and by section (the states at rest, then the named values
// of each body) how a value lies and what one rank of a stage that has it holds.
struct LayoutListing {
  struct Entry {
    std::string name, labels;
    Sizes sizes;
    DType dtype = DType::f32;
    Layout layout;
    int rank = 0;
    Sizes local;  // of that rank
    bool operator==(const Entry&) const = default;
  };
  struct Section {
    std::string name;
    std::vector<Entry> entries;
    bool operator==(const Section&) const = default;
  };
  Mesh mesh;
  std::vector<std::string> rules;  // a line each
  std::vector<Section> sections;
};

LayoutListing list_layouts(const Program& program, const Pieces& pieces, const Plan& plan);

std::string show(const LayoutListing& listing);
// Lines that begin with '#' say nothing. Throws Error naming the line.
LayoutListing parse_layouts(std::string_view text);

}  // namespace myriad
