// Whole files: read at once, or written aside and renamed, so that a reader sees the old file or
// the whole new one.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace myriad {

// Throws Error naming the file and the system's reason.
std::string read_file(const std::filesystem::path& path);

// Writes `<path>.part`, syncs it, and renames it over `path`. Throws Failure naming the file and
// the system's reason (no space, no permission); `path` is then as it was.
void write_file_aside(const std::filesystem::path& path, std::string_view bytes);

}  // namespace myriad
