// Every kind of error leads to its own exit code and carries its whole message.
#include "base/error.hpp"

#include <gmock/gmock.h>

namespace spillway {
namespace {

template <class E>
ExitCode code_of(const E& thrown) {
  try {
    throw thrown;
  } catch (const Error& error) {
    return error.code();
  }
}

TEST(Error, KindsLeadToTheirExitCodes) {
  EXPECT_EQ(code_of(InputError("x")), ExitCode::usage);
  EXPECT_EQ(code_of(EnvironmentError("x")), ExitCode::environment);
  EXPECT_EQ(code_of(InternalError("x")), ExitCode::invalid);
}

TEST(Error, ExitCodesAreThePublishedNumbers) {
  EXPECT_EQ(static_cast<int>(ExitCode::valid), 0);
  EXPECT_EQ(static_cast<int>(ExitCode::invalid), 1);
  EXPECT_EQ(static_cast<int>(ExitCode::usage), 2);
  EXPECT_EQ(static_cast<int>(ExitCode::environment), 3);
  EXPECT_EQ(static_cast<int>(ExitCode::requeue), 75);
}

TEST(RequireInput, ThrowsTheFormattedMessageOnlyWhenTheConditionFails) {
  EXPECT_NO_THROW(require_input(true, "never {}", 1));
  try {
    require_input(false, "{} layers on {} stages", 30, 4);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "30 layers on 4 stages");
  }
}

TEST(Ensure, ThrowsAnInternalError) {
  EXPECT_NO_THROW(ensure(true, "never"));
  EXPECT_THROW(ensure(false, "{} != {}", 1, 2), InternalError);
}

}  // namespace
}  // namespace spillway
