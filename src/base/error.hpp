#pragma once
// Errors a user can act on: what was wrong, the value, the arithmetic, the remedy. main turns them into exit codes.
#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace spillway {

/// Exit codes of the program.
enum class ExitCode : int { valid = 0, invalid = 1, usage = 2, environment = 3, requeue = 75 };

/// Base of every error that main reports; carries the exit code it leads to.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what) : std::runtime_error(what), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// The case, the command line or an input file is wrong.
struct InputError : Error {
  explicit InputError(const std::string& what) : Error(ExitCode::usage, what) {}
};

/// The machine, the launcher or a library does not offer what the case needs.
struct EnvironmentError : Error {
  explicit EnvironmentError(const std::string& what) : Error(ExitCode::environment, what) {}
};

/// A promise of the program to itself is broken: the run is invalid.
struct InternalError : Error {
  explicit InternalError(const std::string& what) : Error(ExitCode::invalid, what) {}
};

/// Throws InputError with a formatted message unless `condition` holds.
template <class... Args>
void require_input(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw InputError(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws InternalError with a formatted message unless `condition` holds.
template <class... Args>
void ensure(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw InternalError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace spillway
