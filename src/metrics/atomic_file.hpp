#pragma once
// Result files appear whole or not at all.
#include <filesystem>
#include <string>
#include <string_view>

namespace spillway {

/// Writes `text` to a temporary file in the same folder, flushes it to the device and renames it to `path`. On any
/// failure (missing folder, no permission, full disk) an earlier file at `path` is untouched, no temporary file stays,
/// and EnvironmentError names the path and the system's reason.
void write_atomically(const std::filesystem::path& path, std::string_view text);

/// The same for a file that is written piece by piece: it appears with commit(), or not at all. Throws as
/// write_atomically does.
class AtomicWriter {
 public:
  explicit AtomicWriter(std::filesystem::path target);
  AtomicWriter(const AtomicWriter&) = delete;
  AtomicWriter& operator=(const AtomicWriter&) = delete;
  ~AtomicWriter();

  void write(std::string_view text);
  void commit();

 private:
  [[noreturn]] void fail(const char* step) const;

  std::filesystem::path target_;
  std::string name_;  ///< of the temporary file
  int descriptor_ = -1;
  bool created_ = false;
};

/// The whole of a file. Throws EnvironmentError that names the path and the system's reason.
std::string read_text(const std::filesystem::path& path);

}  // namespace spillway
