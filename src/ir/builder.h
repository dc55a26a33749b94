// Appends ops to a body; checks that labels agree in size; makes the output values.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace myriad {

class Builder {
 public:
  Builder(Graph& graph, Body& body) : graph_(graph), body_(body) {}

  struct Options {
    std::vector<std::string> names;  // of the outputs; empty: temporaries
    LabelSizes sizes;                // of labels that no operand has
    Attrs attrs;
    std::vector<DType>
        dtypes;  // of the outputs; empty: that of the first real operand, else the graph's real
  };
  // `rule` is "bsd,fd->bsf"; several outputs are parted by ';'. Throws Error naming op, rule and
  // sizes.
  std::vector<int> op(Row row, std::span<const int> ins, std::string_view rule, Options options);
  int op1(Row row, std::initializer_list<int> ins, std::string_view rule, Options options);

  int contract(std::string_view rule, std::span<const int> ins, std::string name = "",
               double scale = 1, uint32_t stop = 0, std::optional<DType> dtype = {});
  int contract(std::string_view rule, std::initializer_list<int> ins, std::string name = "",
               double scale = 1, uint32_t stop = 0, std::optional<DType> dtype = {});
  int add(std::span<const int> ins, std::string name = "");
  int add(std::initializer_list<int> ins, std::string name = "");
  // First operand gives the labels of the output.
  int elementwise(Row row, std::initializer_list<int> ins, std::string name = "", Attrs attrs = {});
  int cast(int x, DType to, std::string name = "");
  int read(StateName state, std::string labels, Sizes sizes, DType dtype, std::string name = "");
  void write(Row row, int value, StateName state);  // write or accum
  // The same by the printed name of the state, for programs written by hand.
  int read(std::string_view state, std::string labels, Sizes sizes, DType dtype,
           std::string name = "");
  void write(Row row, int value, std::string_view state);
  int input(std::string name, std::string labels, Sizes sizes, DType dtype);

  int part = 0;  // of the piece, given to the ops that follow

  Graph& graph() { return graph_; }
  Body& body() { return body_; }

 private:
  Graph& graph_;
  Body& body_;
};

}  // namespace myriad
