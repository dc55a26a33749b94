// The table of kernels: for every op those that can run it, in order of preference, the reference
// last. choose() takes the first that does not decline. A kernel declines for reasons of types,
// labels, attributes and local sizes (fast/declines.cc, and beside the contracts in
// fast/contract.cc and fast/reduce.cc), and it runs whatever it did not decline, so that the name
// of a choice is the name of what runs. Read kernels/kernel.h first.
#include <iterator>
#include <string_view>

#include "kernels/call.h"
#include "kernels/fast/fast.h"
#include "kernels/ref/elementwise.h"
#include "kernels/ref/ref.h"

namespace myriad {

namespace {

constexpr int kMostChoices = 6;

struct Entry {
  Row row;
  int count = 0;
  KernelChoice list[kMostChoices] = {};
  double flops = 0;  // an element of the first operand; count_flops() has those of products
};

const char* never(const Op&, const LabelSizes&, DType) { return nullptr; }

using Declines = const char* (*)(const Op&, const LabelSizes&, DType);
using Scratch = size_t (*)(const Op&, const LabelSizes&, DType);

// A kernel of the processor cannot fail: bad sizes are a CHECK.
template <void (*kernel)(const KernelCall&)>
KernelStatus run(const KernelCall& call) {
  kernel(call);
  return KernelStatus::ok;
}

template <void (*kernel)(const KernelCall&)>
constexpr KernelChoice plain(Scratch scratch = nullptr) {
  return {"ref", never, scratch, run<kernel>};
}
template <void (*kernel)(const KernelCall&)>
constexpr KernelChoice fast_if(const char* name, Declines declines, Scratch scratch = nullptr) {
  return {name, declines, scratch, run<kernel>};
}
// A kernel that takes every call on f32 tensors.
template <void (*kernel)(const KernelCall&)>
constexpr KernelChoice quick(const char* name, Scratch scratch = nullptr) {
  return {name, fast::takes_f32, scratch, run<kernel>};
}
// A kernel that takes every call on tensors of f32 or bf16.
template <void (*kernel)(const KernelCall&)>
constexpr KernelChoice either(const char* name, Scratch scratch = nullptr) {
  return {name, fast::takes_f32_or_bf16, scratch, run<kernel>};
}

// Rows without a fast kernel work on one number a token or less, or copy.
constexpr Entry kTable[] = {
    {Row::contract,
     6,
     {fast_if<fast::few>("fast.few", fast::few_declines),
      fast_if<fast::gemm>("fast.gemm", fast::gemm_declines),
      fast_if<fast::map>("fast.map", fast::map_declines),
      fast_if<fast::dot>("fast.dot", fast::dot_declines),
      fast_if<fast::columns>("fast.columns", fast::columns_declines), plain<ref::contract>()}},
    {Row::broadcast,
     2,
     {fast_if<fast::map>("fast.map", fast::map_declines), plain<ref::broadcast>()}},
    {Row::add, 2, {fast_if<fast::add>("fast.add", fast::add_declines), plain<ref::add>()}},
    {Row::cast, 2, {either<fast::cast>("fast.cast"), plain<ref::cast>()}},
    {Row::rsqrt, 1, {plain<ref::rsqrt>()}, 3},
    {Row::recip, 1, {plain<ref::map<ref::recip>>()}, 1},
    {Row::log, 1, {plain<ref::map<ref::log>>()}, 1},
    {Row::silu, 2, {either<fast::silu>("fast.silu"), plain<ref::map<ref::silu>>()}, 4},
    {Row::silu_grad,
     2,
     {either<fast::silu_grad>("fast.silu_grad"), plain<ref::map_grad<ref::silu_grad>>()},
     7},
    {Row::sigmoid, 2, {quick<fast::sigmoid>("fast.sigmoid"), plain<ref::map<ref::sigmoid>>()}, 4},
    {Row::sigmoid_grad, 1, {plain<ref::map_grad<ref::sigmoid_grad>>()}, 3},
    {Row::gelu, 2, {either<fast::gelu>("fast.gelu"), plain<ref::map<ref::gelu>>()}, 9},
    {Row::gelu_grad,
     2,
     {either<fast::gelu_grad>("fast.gelu_grad"), plain<ref::map_grad<ref::gelu_grad>>()},
     16},
    {Row::softmax, 2, {quick<fast::softmax>("fast.softmax"), plain<ref::softmax>()}, 4},
    {Row::max_stop, 2, {either<fast::max_stop>("fast.max_stop"), plain<ref::max_stop>()}, 1},
    {Row::sum_exp, 2, {either<fast::sum_exp>("fast.sum_exp"), plain<ref::sum_exp>()}, 3},
    {Row::exp_scale, 2, {either<fast::exp_scale>("fast.exp_scale"), plain<ref::exp_scale>()}, 3},
    {Row::pick, 1, {plain<ref::pick>()}},
    {Row::unpick,
     2,
     {fast_if<fast::unpick>("fast.unpick", fast::unpick_declines), plain<ref::unpick>()}},
    {Row::topk,
     2,
     {fast_if<fast::topk>("fast.topk", fast::topk_declines), plain<ref::topk>(ref::topk_scratch)}},
    {Row::count, 1, {plain<ref::count>()}},
    {Row::fits, 1, {plain<ref::fits>(ref::experts_scratch)}},
    {Row::window, 1, {plain<ref::window>(ref::experts_scratch)}},
    {Row::rounds, 1, {plain<ref::rounds>(ref::experts_scratch)}},
    {Row::dispatch, 2, {either<fast::dispatch>("fast.dispatch"), plain<ref::dispatch>()}},
    {Row::combine,
     2,
     {either<fast::combine>("fast.combine", fast::combine_scratch), plain<ref::combine>()},
     1},
    {Row::leads, 1, {plain<ref::leads>()}},
    {Row::spread, 1, {plain<ref::spread>()}},
    {Row::collapse, 1, {plain<ref::collapse>()}, 1},
    {Row::dispatch_w, 1, {plain<ref::dispatch_w>()}},
    {Row::collect_w, 1, {plain<ref::collect_w>()}},
    {Row::balance, 1, {plain<ref::balance>()}},
    {Row::valid, 1, {plain<ref::valid>()}},
    {Row::gather_rows,
     2,
     {either<fast::gather_rows>("fast.gather_rows"), plain<ref::gather_rows>()}},
    {Row::scatter_rows,
     2,
     {fast_if<fast::scatter_rows>("fast.scatter_rows", fast::scatter_rows_declines),
      plain<ref::scatter_rows>()},
     1},
    {Row::place_rows, 1, {plain<ref::place_rows>()}},
    {Row::rope, 2, {fast_if<fast::rope>("fast.rope", fast::rope_declines), plain<ref::rope>()}, 3},
    {Row::attention,
     2,
     {either<fast::attention>("fast.attention", fast::attention_scratch),
      plain<ref::attention>(ref::attention_scratch)}},
    {Row::attention_grad,
     2,
     {either<fast::attention_grad>("fast.attention_grad", fast::attention_grad_scratch),
      plain<ref::attention_grad>(ref::attention_grad_scratch)}},
    {Row::slice, 1, {plain<ref::slice>()}},
    {Row::pad, 1, {plain<ref::pad>()}},
    {Row::sum_exact,
     2,
     {fast_if<fast::sum_exact>("fast.sum_exact", fast::sum_exact_declines, fast::sum_exact_scratch),
      plain<ref::sum_exact>()}},
    {Row::clip, 1, {plain<ref::clip>()}},
    {Row::settle_exact, 1, {plain<ref::settle_exact>()}},
    {Row::adamw, 2, {quick<fast::adamw>("fast.adamw"), plain<ref::adamw>()}, 15},
    {Row::read},  // the executor moves state itself
    {Row::write},
    {Row::accum},
};

constexpr bool complete() {
  if (std::size(kTable) != kRows) return false;
  for (int i = 0; i < kRows; ++i) {
    const Entry& e = kTable[i];
    if (e.row != static_cast<Row>(i)) return false;
    const bool state = e.row == Row::read || e.row == Row::write || e.row == Row::accum;
    if (state != (e.count == 0)) return false;
    if (!state && e.list[e.count - 1].name != std::string_view("ref")) return false;
  }
  return true;
}
static_assert(
    complete(),
    "each row but read, write and accum has kernels, in the order of Row, a reference last");

}  // namespace

const char* name_of(KernelStatus status) {
  return status == KernelStatus::ok ? "ok" : "a device error";
}

std::span<const KernelChoice> choices(Row row) {
  const Entry& e = kTable[static_cast<int>(row)];
  return {e.list, static_cast<size_t>(e.count)};
}

double flops_an_element(Row row) { return kTable[static_cast<int>(row)].flops; }

const KernelChoice& choose(const Op& op, const LabelSizes& local, DType real, KernelSet set) {
  const auto list = choices(op.row);
  CHECK(!list.empty(), "row {} has no kernels", static_cast<int>(op.row));
  if (set == KernelSet::ref) return list.back();
  for (const KernelChoice& choice : list) {
    if (choice.declines(op, local, real) == nullptr) return choice;
  }
  return list.back();
}

}  // namespace myriad
