// A cluster as the text of its file: read again, it is the same to six digits.
#pragma once

#include <string>

#include "cluster/cluster.h"

namespace myriad {

// about: for people, one line.
std::string write_cluster(const Cluster& cluster, const std::string& about = "");

}  // namespace myriad
