// Mutations of files, and checksums made right again, so that what lies behind them is reached.
#pragma once

#include <random>
#include <string>
#include <vector>

// One of the seeds with one or several changes: bytes flipped, set, cut out, put in, doubled; taken
// from another seed; numbers in text and in binary replaced by extreme ones; cut short.
std::string mutated(const std::vector<std::string>& seeds, std::mt19937_64& random);

void sign_packed(std::string& bytes);    // a packed file (data/packed.h)
void sign_manifest(std::string& bytes);  // a checkpoint's manifest.json, where it is JSON still
