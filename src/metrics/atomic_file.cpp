#include "metrics/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace spillway {
namespace {

/// Makes the rename itself durable; file systems that cannot flush a folder still hold the whole file.
void flush_folder(const std::filesystem::path& path) {
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

AtomicWriter::AtomicWriter(std::filesystem::path target)
    : target_(std::move(target)), name_(target_.string() + fmt::format(".{}.tmp", ::getpid())) {
  std::error_code unknown;  // what cannot be looked at cannot be written either, and says so there
  const auto status = std::filesystem::status(target_, unknown);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw EnvironmentError(fmt::format("cannot write {}: it is no file; name another", target_.string()));
  descriptor_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("create");
  created_ = true;
}

AtomicWriter::~AtomicWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (created_) ::unlink(name_.c_str());
}

void AtomicWriter::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("write");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AtomicWriter::commit() {
  if (::fsync(descriptor_) != 0) fail("flush");
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("close");
  if (::rename(name_.c_str(), target_.c_str()) != 0) fail("rename");
  created_ = false;
  flush_folder(target_);
}

void AtomicWriter::fail(const char* step) const {
  const int code = errno;
  throw EnvironmentError(
      fmt::format("cannot write {}: {} of the temporary file failed: {}. An earlier file there is "
                  "unchanged; free space or name another folder",
                  target_.string(), step, std::strerror(code)));
}

void write_atomically(const std::filesystem::path& path, std::string_view text) {
  AtomicWriter file(path);
  file.write(text);
  file.commit();
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw EnvironmentError(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
  return text.str();
}

}  // namespace spillway
