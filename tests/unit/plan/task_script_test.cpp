// The script of a stage: messages and blocks in order, and reloads where a copy can hide.
#include "plan/program/task_script.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "base/random.hpp"

namespace spillway {
namespace {

using Kind = Item::Kind;

std::vector<StageBlock> blocks_of(std::initializer_list<BlockKind> kinds) {
  std::vector<StageBlock> blocks;
  for (const BlockKind kind : kinds) blocks.push_back({kind, static_cast<int>(blocks.size()), {}});
  return blocks;
}
std::vector<StageBlock> blocks_of_stage(int stage, int stages, int layers) {
  std::vector<StageBlock> blocks;
  if (stage == 0) blocks.push_back({BlockKind::embedding, -1, {}});
  for (int i = 0; i < layers; ++i) blocks.push_back({BlockKind::moe, i, {}});
  if (stage == stages - 1) blocks.push_back({BlockKind::head, -1, {}});
  return blocks;
}

std::vector<Item> script(std::span<const Task> order, std::span<const StageBlock> blocks) {
  std::vector<Item> items;
  for (std::size_t t = 0; t < order.size(); ++t) {
    const auto part = task_script(order, t, blocks);
    items.insert(items.end(), part.begin(), part.end());
  }
  return items;
}

std::string text(const std::vector<Item>& items) {
  static constexpr const char* names[] = {"recv", "F", "send", "R", "grad", "B", "sendgrad"};
  std::string s;
  for (const Item& i : items) {
    if (!s.empty()) s += ' ';
    s += names[static_cast<int>(i.kind)];
    s += std::to_string(i.micro_batch) + "." + std::to_string(i.block);
  }
  return s;
}

TEST(TaskScript, AMiddleStageOfTwoLayersByHand) {
  const auto blocks = blocks_of({BlockKind::moe, BlockKind::moe});
  // F0 F1 B0 B1: B0's last block returns beside F1, B1's beside the end of B0.
  const auto order = one_forward_one_backward({2, 2})[0];
  EXPECT_EQ(text(script(order, blocks)),
            "recv0.0 F0.0 F0.1 send0.1 "
            "R0.1 recv1.0 F1.0 F1.1 send1.1 "
            "grad0.1 R0.0 B0.1 R1.1 B0.0 sendgrad0.0 "
            "grad1.1 R1.0 B1.1 B1.0 sendgrad1.0");
}

TEST(TaskScript, TheLastStageReloadsRightAwayWhatItHasJustSentForward) {
  const auto blocks = blocks_of({BlockKind::moe, BlockKind::head});
  EXPECT_EQ(text(script(one_forward_one_backward({2, 2})[1], blocks)),
            "recv0.0 F0.0 F0.1 R0.1 R0.0 B0.1 B0.0 sendgrad0.0 recv1.0 F1.0 F1.1 R1.1 R1.0 B1.1 B1.0 sendgrad1.0");
}

/// Two chunks of a layer each, the first with the embedding.
std::vector<StageBlock> two_chunks() {
  auto blocks = blocks_of({BlockKind::embedding, BlockKind::moe, BlockKind::moe});
  blocks[2].chunk = 1;
  return blocks;
}

TEST(TaskScript, ChunksAreWorkedByThemselvesByHand) {
  const std::vector<Task> order = {{Task::Kind::forward, 0, 0},
                                   {Task::Kind::forward, 0, 1},
                                   {Task::Kind::backward, 0, 1},
                                   {Task::Kind::backward, 0, 0}};
  EXPECT_EQ(text(script(order, two_chunks())),
            "F0.0 F0.1 send0.1 recv0.2 F0.2 send0.2 R0.2 grad0.2 R0.1 B0.2 sendgrad0.2 grad0.1 R0.0 B0.1 B0.0");
  // Another chunk's backward right after a forward of the same micro-batch: its tensors come back beside that.
  const std::vector<Task> other = {{Task::Kind::forward, 0, 1}, {Task::Kind::backward, 0, 0}};
  EXPECT_EQ(text(task_script(other, 0, two_chunks())), "R0.1 recv0.2 F0.2 send0.2");
}

TEST(TaskScript, FirstAndLastBlocksDecideAboutMessages) {
  EXPECT_TRUE(receives_input(blocks_of({BlockKind::dense, BlockKind::moe}), 0));
  EXPECT_FALSE(receives_input(blocks_of({BlockKind::synthetic_input, BlockKind::moe}), 0));
  EXPECT_TRUE(sends_output(blocks_of({BlockKind::embedding, BlockKind::dense}), 0));
  EXPECT_FALSE(sends_output(blocks_of({BlockKind::moe, BlockKind::square_loss}), 0));
  EXPECT_TRUE(sends_output(two_chunks(), 0));
  EXPECT_TRUE(receives_input(two_chunks(), 1));
}

TEST(MessageEnd, GoesToTheNextPieceOfTheModelAndRoundToTheFirstStage) {
  const auto end = [](Kind kind, int mb, int chunk, int stage, int stages) {
    const MessageEnd e = message_end({kind, mb, 0}, chunk, {stage, stages, 10});
    return std::make_pair(e.stage, e.tag);
  };
  using Pair = std::pair<int, int>;
  EXPECT_EQ(end(Kind::send_output, 3, 0, 0, 4), (Pair{1, 3}));
  EXPECT_EQ(end(Kind::receive_input, 3, 0, 1, 4), (Pair{0, 3}));
  EXPECT_EQ(end(Kind::send_output, 3, 0, 3, 4), (Pair{0, 13}));  // into chunk 1 of the first stage
  EXPECT_EQ(end(Kind::receive_input, 3, 1, 0, 4), (Pair{3, 13}));
  EXPECT_EQ(end(Kind::send_gradient, 3, 1, 0, 4), (Pair{3, 3}));
  EXPECT_EQ(end(Kind::receive_gradient, 3, 0, 3, 4), (Pair{0, 3}));
  EXPECT_EQ(end(Kind::send_gradient, 3, 1, 2, 4), (Pair{1, 13}));
}

/// What one rank sends, another receives, and no two messages between the same ranks have one tag.
TEST(MessageEnd, SendersAndReceiversAgreeInAnyShape) {
  for (const int stages : {2, 3, 4})
    for (const int chunks : {1, 2, 3}) {
      std::map<std::array<int, 4>, int> sent, received;  // by [from, to, backward, tag]
      for (int stage = 0; stage < stages; ++stage)
        for (int chunk = 0; chunk < chunks; ++chunk)
          for (int mb = 0; mb < 5; ++mb) {
            const bool first = stage + chunk == 0, last = stage == stages - 1 && chunk == chunks - 1;
            const auto end = [&](Kind kind) { return message_end({kind, mb, 0}, chunk, {stage, stages, 5}); };
            if (!last) {
              ++sent[{stage, end(Kind::send_output).stage, 0, end(Kind::send_output).tag}];
              ++received[{end(Kind::receive_gradient).stage, stage, 1, end(Kind::receive_gradient).tag}];
            }
            if (!first) {
              ++sent[{stage, end(Kind::send_gradient).stage, 1, end(Kind::send_gradient).tag}];
              ++received[{end(Kind::receive_input).stage, stage, 0, end(Kind::receive_input).tag}];
            }
          }
      EXPECT_EQ(sent, received) << stages << " stages, " << chunks << " chunks";
      for (const auto& [message, count] : sent) EXPECT_EQ(count, 1);
    }
}

/// Every (micro-batch, block) goes forward, is reloaded and goes backward once each, in this order.
void expect_each_once_in_order(const std::vector<Item>& items, int micro_batches, int blocks) {
  std::map<std::pair<int, int>, std::vector<std::size_t>> forward, reload, backward;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto key = std::make_pair(items[i].micro_batch, items[i].block);
    if (items[i].kind == Kind::forward) forward[key].push_back(i);
    if (items[i].kind == Kind::reload) reload[key].push_back(i);
    if (items[i].kind == Kind::backward) backward[key].push_back(i);
  }
  for (int mb = 0; mb < micro_batches; ++mb)
    for (int b = 0; b < blocks; ++b) {
      const auto key = std::make_pair(mb, b);
      ASSERT_EQ(forward[key].size(), 1u);
      ASSERT_EQ(reload[key].size(), 1u) << "micro-batch " << mb << ", block " << b;
      ASSERT_EQ(backward[key].size(), 1u);
      ASSERT_LT(forward[key][0], reload[key][0]);
      ASSERT_LT(reload[key][0], backward[key][0]);
    }
}

TEST(TaskScript, EveryReloadComesOnceAfterItsForwardAndBeforeItsBackward) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 17; ++m) {
      const Schedule schedule = one_forward_one_backward({p, m});
      for (int stage = 0; stage < p; ++stage)
        for (const int layers : {1, 2, 3}) {
          SCOPED_TRACE(::testing::Message() << "p " << p << ", m " << m << ", stage " << stage);
          const auto blocks = blocks_of_stage(stage, p, layers);
          expect_each_once_in_order(script(schedule[static_cast<std::size_t>(stage)], blocks), m,
                                    static_cast<int>(blocks.size()));
          if (HasFatalFailure()) return;
        }
    }
}

/// Any order in which every backward follows its forward.
std::vector<Task> random_order(std::uint64_t seed, int micro_batches) {
  const CounterRandom random(seed);
  std::vector<Task> order;
  std::vector<int> live;
  int next = 0;
  for (std::uint64_t n = 0; std::ssize(order) < 2 * micro_batches; ++n) {
    if (next < micro_batches && (live.empty() || random.below(2 * n, 2) == 0)) {
      order.push_back({Task::Kind::forward, next});
      live.push_back(next++);
    } else {
      const auto at = static_cast<std::ptrdiff_t>(random.below(2 * n + 1, live.size()));
      order.push_back({Task::Kind::backward, live[static_cast<std::size_t>(at)]});
      live.erase(live.begin() + at);
    }
  }
  return order;
}

TEST(TaskScript, SoItDoesInAnyOrderOfTasks) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const int m = 1 + static_cast<int>(seed % 9);
    SCOPED_TRACE(seed);
    const auto blocks = blocks_of_stage(1, 3, 1 + static_cast<int>(seed % 3));
    expect_each_once_in_order(script(random_order(seed, m), blocks), m, static_cast<int>(blocks.size()));
    if (HasFatalFailure()) return;
  }
}

TEST(TaskScript, EveryBlockButTheLastIsReloadedRightBeforeTheBlockAfterItGoesBackward) {
  const auto blocks = blocks_of_stage(1, 3, 3);
  const auto items = script(one_forward_one_backward({3, 6})[1], blocks);
  for (std::size_t i = 0; i + 1 < items.size(); ++i)
    if (items[i].kind == Kind::reload && items[i].block < 2) {
      EXPECT_EQ(items[i + 1], (Item{Kind::backward, items[i].micro_batch, items[i].block + 1}));
    }
}

}  // namespace
}  // namespace spillway
