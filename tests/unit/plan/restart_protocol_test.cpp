// When a static policy gives way and when it comes back.
#include "plan/restart_protocol.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

constexpr RestartProtocol::Options options{.calm_imbalance = 1.2, .calm_iterations = 2};

TEST(RestartProtocol, StartsFastAndStaysFastWhateverTheLoadThatFits) {
  RestartProtocol protocol(options);
  EXPECT_FALSE(protocol.conservative());
  EXPECT_FALSE(protocol.completed(0, 2.6));
  EXPECT_FALSE(protocol.completed(0, 1.0));
  EXPECT_FALSE(protocol.conservative());
}

TEST(RestartProtocol, ReturnsAfterTheStatedNumberOfConsecutiveCalmIterations) {
  RestartProtocol protocol(options);
  EXPECT_TRUE(protocol.out_of_memory(0));
  EXPECT_TRUE(protocol.conservative());
  EXPECT_FALSE(protocol.completed(0, 2.0));   // the spike, redone
  EXPECT_FALSE(protocol.completed(0, 1.1));   // calm: one
  EXPECT_FALSE(protocol.completed(0, 1.21));  // not calm: the count starts again
  EXPECT_FALSE(protocol.completed(0, 1.2));   // just calm: one
  EXPECT_TRUE(protocol.completed(0, 1.0));    // two
  EXPECT_FALSE(protocol.conservative());
}

TEST(RestartProtocol, NothingIsLeftToFallBackToUnderTheConservativePolicy) {
  RestartProtocol protocol(options);
  EXPECT_TRUE(protocol.out_of_memory(0));
  EXPECT_FALSE(protocol.out_of_memory(0));
}

TEST(RestartProtocol, ASecondSpikeStartsACountOfItsOwn) {
  RestartProtocol protocol(options);
  protocol.out_of_memory(0);
  protocol.completed(0, 1.0);
  EXPECT_TRUE(protocol.completed(0, 1.0));
  EXPECT_TRUE(protocol.out_of_memory(0));
  EXPECT_FALSE(protocol.completed(0, 1.0));
  EXPECT_TRUE(protocol.completed(0, 1.0));
}

TEST(RestartProtocol, IterationsRedoneBeforeTheFatalOneDoNotCountAsCalm) {
  RestartProtocol protocol(options);
  EXPECT_TRUE(protocol.out_of_memory(3));
  EXPECT_FALSE(protocol.completed(1, 1.0));
  EXPECT_FALSE(protocol.completed(2, 1.0));
  EXPECT_FALSE(protocol.completed(3, 2.6));
  EXPECT_FALSE(protocol.completed(4, 1.0));
  EXPECT_TRUE(protocol.completed(5, 1.0));
}

}  // namespace
}  // namespace spillway
