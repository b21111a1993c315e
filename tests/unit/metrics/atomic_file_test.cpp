#include "metrics/atomic_file.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "metrics/report_json.hpp"
#include "sample.hpp"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class AtomicFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("spillway_atomic_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override {
    ::chmod(folder_.c_str(), 0755);
    fs::remove_all(folder_);
  }
  std::string read(const fs::path& path) const {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  /// What write_atomically says when it fails.
  static std::string message(const fs::path& path, const std::string& text) {
    try {
      write_atomically(path, text);
    } catch (const EnvironmentError& error) {
      return error.what();
    }
    return "no error";
  }
  fs::path folder_;
};

/// Limits the size of files of this process, as a full disk would, until the end of the scope.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limited{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

/// Drops root's right to write everywhere until the end of the scope.
class PlainUser {
 public:
  PlainUser() : root_(::geteuid() == 0) {
    if (root_ && ::seteuid(65534) != 0) throw std::runtime_error("seteuid");
  }
  ~PlainUser() {
    if (root_ && ::seteuid(0) != 0) std::abort();
  }

 private:
  bool root_;
};

TEST_F(AtomicFile, ReplacesAnEarlierFileAndLeavesNoTemporary) {
  write_atomically(folder_ / "result.json", "old");
  write_atomically(folder_ / "result.json", "new");
  EXPECT_EQ(read(folder_ / "result.json"), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFile, MissingFolderIsNamedWithTheReason) {
  const fs::path path = folder_ / "absent" / "result.json";
  EXPECT_THAT(message(path, "x"), AllOf(HasSubstr(path.string()), HasSubstr("No such file or directory")));
}

TEST_F(AtomicFile, FolderThatMayNotBeWrittenIsNamedWithTheReason) {
  ::chmod(folder_.c_str(), 0555);
  const PlainUser user;
  EXPECT_THAT(message(folder_ / "result.json", "x"),
              AllOf(HasSubstr((folder_ / "result.json").string()), HasSubstr("Permission denied")));
}

TEST_F(AtomicFile, FullDiskKeepsTheEarlierFile) {
  write_atomically(folder_ / "result.json", "old");
  std::string said;
  {
    const FileSizeLimit limit(1000);
    said = message(folder_ / "result.json", std::string(5000, 'x'));
  }
  EXPECT_THAT(said, AllOf(HasSubstr("write of the temporary file failed"), HasSubstr("File too large")));
  EXPECT_EQ(read(folder_ / "result.json"), "old");
  EXPECT_EQ(files(), 1u) << "the temporary file is removed";
}

TEST_F(AtomicFile, TargetThatIsAFolderIsRefusedAndLeavesNoTemporary) {
  fs::create_directories(folder_ / "result.json" / "inner");
  EXPECT_THAT(message(folder_ / "result.json", "x"), HasSubstr("it is no file"));
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFile, WrittenReportReadsBackEqual) {
  const Report report = sample::report();
  write_json(report, evaluate(report), folder_ / "result.json");
  EXPECT_EQ(nlohmann::ordered_json::parse(read(folder_ / "result.json")), to_json(report, evaluate(report)));
}

}  // namespace
}  // namespace spillway
