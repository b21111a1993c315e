// When a static policy gives way and when it comes back.
#include "plan/restart_protocol.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

constexpr RestartProtocol::Options options{.calm_imbalance = 1.2, .calm_iterations = 2};

TEST(RestartProtocol, StartsFastAndStaysFastWhateverTheLoadThatFits) {
  RestartProtocol protocol(options);
  EXPECT_FALSE(protocol.conservative());
  EXPECT_FALSE(protocol.completed(2.6));
  EXPECT_FALSE(protocol.completed(1.0));
  EXPECT_FALSE(protocol.conservative());
}

TEST(RestartProtocol, ReturnsAfterTheStatedNumberOfConsecutiveCalmIterations) {
  RestartProtocol protocol(options);
  EXPECT_TRUE(protocol.out_of_memory());
  EXPECT_TRUE(protocol.conservative());
  EXPECT_FALSE(protocol.completed(2.0));   // the spike, redone
  EXPECT_FALSE(protocol.completed(1.1));   // calm: one
  EXPECT_FALSE(protocol.completed(1.21));  // not calm: the count starts again
  EXPECT_FALSE(protocol.completed(1.2));   // just calm: one
  EXPECT_TRUE(protocol.completed(1.0));    // two
  EXPECT_FALSE(protocol.conservative());
}

TEST(RestartProtocol, NothingIsLeftToFallBackToUnderTheConservativePolicy) {
  RestartProtocol protocol(options);
  EXPECT_TRUE(protocol.out_of_memory());
  EXPECT_FALSE(protocol.out_of_memory());
}

TEST(RestartProtocol, ASecondSpikeStartsACountOfItsOwn) {
  RestartProtocol protocol(options);
  protocol.out_of_memory();
  protocol.completed(1.0);
  EXPECT_TRUE(protocol.completed(1.0));
  EXPECT_TRUE(protocol.out_of_memory());
  EXPECT_FALSE(protocol.completed(1.0));
  EXPECT_TRUE(protocol.completed(1.0));
}

}  // namespace
}  // namespace spillway
