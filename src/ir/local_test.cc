#include "ir/local.h"

#include <gtest/gtest.h>

#include "ir/print.h"

namespace myriad {
namespace {

TEST(Local, NodesOfRanks) {
  EXPECT_EQ(node_of_rank(7, 0), 0);
  EXPECT_EQ(node_of_rank(7, 4), 1);
  EXPECT_EQ(node_of_rank(8, 4), 2);
  EXPECT_EQ(node_of_rank(7, 3), 2);
}

// Six ranks: two parts of the experts times three parts of the hidden size.
const Mesh kMesh({{"ep", 2}, {"tp", 3}});

LoweredBody body() {
  return parse_body(R"(
graph 0 f32
  value x "bsd" 4,24,48 bf16
  value chosen "bsj" 4,24,2 i32
  value w "ied" 7,5,48 f32
  value rows "ebsd" 5,4,24,48 f32 rows chosen density 0.4
  value out "ebsi" 5,4,24,7 f32 rows chosen density 0.4
body b piece 0 graph 0
  inputs v0 x [d:tp], v1 chosen [whole], v2 w [e:ep d:tp], v3 rows [e:ep d:tp]
  op 0 rows = dispatch "bsd,bsj->ebsd" (x, chosen) [b=4 s=24 d=48 j=2 e=5]
  v4 rows [e:ep d:tp] = run 0 (v0, v1) cut [d:tp e:ep]
  op 1 out = contract "ebsd,ied->ebsi" (rows, w) [e=5 b=4 s=24 d=48 i=7]
  v5 out [e:ep sum:tp] = run 1 (v3, v2) cut [e:ep d:tp]
  op 2 x = add "bsd,bsd->bsd" (x, x) [b=4 s=24 d=48]
  v6 x [d:tp] = run 2 (v0, v0) cut [d:tp]
  outputs
)",
                    kMesh);
}

TEST(Local, BoxAndBytes) {
  const LoweredBody b = body();
  const Layout& layout = b.versions[2].layout;
  const Sizes sizes = {7, 5, 48};
  const LocalBox box = local_box(kMesh, layout, sizes, 4);  // ep 1, tp 1
  EXPECT_EQ(box[0], (Range{0, 7}));
  EXPECT_EQ(box[1], (Range{2, 5}));  // of five experts the second half has three
  EXPECT_EQ(box[2], (Range{16, 32}));
  EXPECT_EQ(local_bytes(kMesh, (*b.graph)[b.versions[2].value], layout, 4), 7 * 3 * 16 * 4);
  EXPECT_EQ(local_bytes(kMesh, (*b.graph)[b.versions[2].value], layout, 1), 7 * 2 * 16 * 4);
  EXPECT_EQ(local_bytes(kMesh, (*b.graph)[0], b.versions[0].layout, 0), 4 * 24 * 16 * 2);
}

TEST(Local, LabelsOfAnOp) {
  const LoweredBody b = body();
  const LabelSizes local = local_labels(kMesh, b.ops[1], b.steps[1], 3);
  EXPECT_EQ(local.labels, "ebsdi");
  EXPECT_EQ(local.sizes, (Sizes{3, 4, 24, 16, 7}));
  EXPECT_EQ(local_labels(kMesh, b.ops[1], b.steps[1], 0).sizes, (Sizes{2, 4, 24, 16, 7}));
}

// A kernel sees routed rows as the positions of one expert and one row.
TEST(Local, LabelsOnRoutedRows) {
  const LoweredBody b = body();
  EXPECT_EQ(routed_version(b, b.steps[0]), 4);  // made
  EXPECT_EQ(routed_version(b, b.steps[1]), 3);  // read before made
  EXPECT_EQ(routed_version(b, b.steps[2]), -1);
  EXPECT_EQ(row_elements(kMesh, (*b.graph)[b.versions[3].value], b.versions[3].layout, 0), 16);
  EXPECT_EQ(row_elements(kMesh, (*b.graph)[b.versions[5].value], b.versions[5].layout, 0), 7);
  const LabelSizes local = local_labels(kMesh, b.ops[1], b.steps[1], 0);
  EXPECT_EQ(labels_on_rows(kMesh, b, 3, local, 9 * 16, 0).sizes, (Sizes{1, 1, 9, 16, 7}));
  EXPECT_EQ(labels_on_rows(kMesh, b, 5, local, 9 * 7, 0).sizes, (Sizes{1, 1, 9, 16, 7}));
}

// Where the hidden size has fewer elements than ranks, some hold rows of no width.
TEST(Local, RowsWithoutWidth) {
  const LoweredBody b = parse_body(R"(
graph 0 f32
  value chosen "bsj" 1,8,2 i32
  value rows "ebsd" 5,1,8,2 f32 rows chosen density 0.4
body b piece 0 graph 0
  inputs v0 rows [d:tp], v1 chosen [whole]
  op 0 rows = add "ebsd,ebsd->ebsd" (rows, rows) [e=5 b=1 s=8 d=2]
  v2 rows [d:tp] = run 0 (v0, v0) cut [d:tp]
  outputs
)",
                                   kMesh);
  const LabelSizes local = local_labels(kMesh, b.ops[0], b.steps[0], 0);
  EXPECT_EQ(local.sizes, (Sizes{5, 1, 8, 0}));
  EXPECT_EQ(labels_on_rows(kMesh, b, 0, local, 0, 0).sizes, (Sizes{1, 1, 0, 0}));
}

}  // namespace
}  // namespace myriad
