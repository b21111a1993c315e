#pragma once
// Shared by the tests of the configuration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "app/case_reader.hpp"
#include "base/error.hpp"

namespace spillway::app {

/// Message of the InputError that `action` throws; a failed test and "" where it throws none.
template <class Action>
std::string input_error_of(const Action& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no InputError was thrown";
  return "";
}

/// A folder of inputs of its own: runs/, models/, machines/ below a temporary folder that goes with the test.
class InputTree {
 public:
  InputTree() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::temp_directory_path() /
            ("spillway-" + std::string(test->test_suite_name()) + "-" + test->name() + "-" + std::to_string(getpid()));
    std::filesystem::remove_all(root_);
    write("models/small.toml", "hidden_size = 32\nnum_experts = 4\n");
    write("machines/box.toml", "peak_flops = 5e9\nranks_per_node = 2\n");
    write("runs/case.toml", "model = \"small\"\nmachine = \"box\"\n");
  }
  ~InputTree() { std::filesystem::remove_all(root_); }

  std::filesystem::path root() const { return root_; }
  std::filesystem::path run_file() const { return root_ / "runs/case.toml"; }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  /// Writes the case file: the two names and `text`.
  void write_case(const std::string& text) const {
    write("runs/case.toml", "model = \"small\"\nmachine = \"box\"\n" + text);
  }
  Case read(std::vector<std::string> settings = {}) const { return read_case({run_file(), std::move(settings)}); }
  std::string error(std::vector<std::string> settings = {}) const {
    return input_error_of([&] { read(settings); });
  }

 private:
  std::filesystem::path root_;
};

/// A case that passes validate(): 4 layers, 8 experts, 1 rank.
inline Case valid_case() {
  Case c;
  c.routing.preset = "balanced";
  return c;
}

}  // namespace spillway::app
