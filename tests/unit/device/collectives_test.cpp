// Messages at any number of ranks, one included: contents, virtual time, and the arithmetic of counts beyond 2 GiB.
#include "device/collectives.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "device/host/row_layout.hpp"

namespace spillway::device {
namespace {

/// An all-to-all takes one second and a second per 100 bytes that its busiest member receives; a message a second per
/// 100 bytes and half a second of latency.
struct SlowNetwork final : TimeModel {
  Seconds compute(Work work) const override { return Seconds(static_cast<double>(work.flops.value)); }
  Seconds all_to_all(std::span<const Bytes> received, std::span<const int> ranks) const override {
    EXPECT_EQ(received.size(), ranks.size());
    return Seconds(1 + static_cast<double>(std::max_element(received.begin(), received.end())->value) / 100);
  }
  Message message(Bytes bytes, int, int) const override {
    return {Seconds(static_cast<double>(bytes.value) / 100), Seconds(0.5)};
  }
  Seconds copy(Bytes) const override { return Seconds(0); }
};
const SlowNetwork model;

void expect(const Event& event, double start, double end) {
  EXPECT_DOUBLE_EQ(event.ran().start.value, start);
  EXPECT_DOUBLE_EQ(event.ran().end.value, end);
}

struct CollectivesTest : testing::Test {
  Group group{MPI_COMM_WORLD, 0};
  int size = group.size(), me = group.rank();
  Clock clock{&model}, wall{nullptr};
  Network network{clock}, beside{wall, true}, unaided{wall};
};

/// Rows that `from` sends to `to`: some ranks send nothing, some receive nothing.
std::int64_t rows_between(int from, int to) { return to == 1 || from == 2 ? 0 : 1 + (from + 2 * to) % 3; }
float value_of(int from, int to, std::int64_t row) { return static_cast<float>(10000 * from + 100 * to + row); }

TEST_F(CollectivesTest, Reports10AllToAllBringsEveryRowAndItsWeightThoughSomeMembersHaveNone) {
  constexpr std::int64_t h = 5;
  std::vector<std::int64_t> out(size), in(size);
  std::vector<float> sent, sent_weight, expected, expected_weight;
  for (int i = 0; i < size; ++i) {
    out[i] = rows_between(me, i);
    in[i] = rows_between(i, me);
    for (std::int64_t r = 0; r < out[i]; ++r)
      sent.insert(sent.end(), h, value_of(me, i, r)), sent_weight.push_back(-value_of(me, i, r));
    for (std::int64_t r = 0; r < in[i]; ++r)
      expected.insert(expected.end(), h, value_of(i, me, r)), expected_weight.push_back(-value_of(i, me, r));
  }
  std::vector<float> received(expected.size()), weight(expected_weight.size());
  const RowExchange exchange{{sent.data(), std::ssize(sent_weight), h},
                             out,
                             {received.data(), std::ssize(weight), h},
                             in,
                             true,
                             sent_weight.data(),
                             weight.data()};
  const Event event = all_to_all(network, group, exchange, Seconds(me));
  EXPECT_EQ(received, expected);
  EXPECT_EQ(weight, expected_weight);
  // It starts when the last member can and lasts as long as the busiest member's rows and weights take.
  std::int64_t busiest = 0;
  for (int to = 0; to < size; ++to) {
    std::int64_t rows = 0;
    for (int from = 0; from < size; ++from) rows += rows_between(from, to);
    busiest = std::max(busiest, rows);
  }
  const double end = size - 1 + 1 + static_cast<double>(busiest * (h + 1) * 4) / 100;
  expect(event, size - 1, end);
  EXPECT_DOUBLE_EQ(clock.network_start(Seconds(0)).value, end) << "the lane is taken to its end on every member";
}

TEST_F(CollectivesTest, Reports12RowsOfTensorParallelRanksAreGatheredAndExchangedInMemberOrder) {
  constexpr std::int64_t n = 2, h = 3;
  std::vector<float> mine(n * h), all(size * n * h), in_place(all), sent(all.size()), received(all.size());
  for (std::int64_t i = 0; i < n * h; ++i) mine[i] = value_of(me, 0, i);
  std::ranges::copy(mine, in_place.begin() + me * n * h);
  for (int to = 0; to < size; ++to)
    for (std::int64_t i = 0; i < n * h; ++i) sent[to * n * h + i] = value_of(me, to, i);
  const double seconds = 1 + static_cast<double>(size * n * h * 4) / 100;
  expect(all_gather_rows(network, group, {mine.data(), n, h}, {all.data(), size * n, h}, Seconds(me)), size - 1,
         size - 1 + seconds);
  all_gather_rows(network, group, {in_place.data() + me * n * h, n, h}, {in_place.data(), size * n, h}, Seconds(0));
  EXPECT_EQ(in_place, all);
  const Event last =
      exchange_rows(network, group, {sent.data(), size * n, h}, {received.data(), size * n, h}, Seconds(0));
  expect(last, size - 1 + 2 * seconds, size - 1 + 3 * seconds);
  for (int from = 0; from < size; ++from)
    for (std::int64_t i = 0; i < n * h; ++i) {
      EXPECT_EQ(all[from * n * h + i], value_of(from, 0, i));
      EXPECT_EQ(received[from * n * h + i], value_of(from, me, i));
    }
  EXPECT_THROW(all_gather_rows(network, group, {mine.data(), n, h}, {all.data(), size * n + 1, h}, Seconds(0)),
               InternalError);
}

// Found here: with nonblocking collectives a member without any row fell out of step with the others.
TEST_F(CollectivesTest, Reports10AMemberWithoutAnyRowStaysInStep) {
  std::vector<std::int64_t> rows(size, 0);
  if (me < 2 && size > 1) rows[1 - me] = 1;  // the first two members trade a row, the others have none
  const std::int64_t n = me < 2 && size > 1 ? 1 : 0;
  for (Network* either : {&network, &beside}) {
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<float> out(2, value_of(me, 0, turn)), in(2, -1);
      all_to_all(*either, group, {{out.data(), n, 2}, rows, {in.data(), n, 2}, rows}, Seconds(0)).wait();
      EXPECT_EQ(in, std::vector<float>(2, n > 0 ? value_of(1 - me, 0, turn) : -1.0f));
    }
    const std::vector<std::int64_t> mine = {me};
    std::vector<std::int64_t> all(static_cast<std::size_t>(size));
    all_gather(*either, group, mine, all, Seconds(0)).wait();
    for (int i = 0; i < size; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
  }
}

// Reported elsewhere: with zero-byte messages one side skipped and the other waited.
TEST_F(CollectivesTest, Reports10AllToAllWithoutAnyRowTakesPartAndTakesItsTime) {
  const std::vector<std::int64_t> none(size, 0);
  expect(all_to_all(network, group, {{nullptr, 0, 4}, none, {nullptr, 0, 4}, none}, Seconds(2)), 2, 3);
}

TEST_F(CollectivesTest, Reports11BuffersThatDisagreeWithTheCountsAreRefusedBeforeAnythingMoves) {
  std::vector<float> data(static_cast<std::size_t>(2 * size));
  const std::vector<std::int64_t> two(size, 2), one(size, 1);
  const Matrix<float> rows{data.data(), size, 1};
  EXPECT_THROW(all_to_all(network, group, {rows, two, rows, one}, Seconds(0)), InternalError);
  EXPECT_THROW(all_to_all(network, group, {rows, one, rows, two}, Seconds(0)), InternalError);
  EXPECT_EQ(clock.now(), Seconds(0));
}

TEST_F(CollectivesTest, AllGatherBringsEverybodysNumbersInMemberOrder) {
  const std::vector<std::int64_t> mine = {me, std::int64_t{1} << 40};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(size));
  expect(all_gather(network, group, mine, all, Seconds(0)), 0, 1 + 16.0 * size / 100);
  for (int i = 0; i < size; ++i) {
    EXPECT_EQ(all[2 * i], i);
    EXPECT_EQ(all[2 * i + 1], std::int64_t{1} << 40);
  }
}

TEST_F(CollectivesTest, PiecesGoToTheirOwnersAndComeBackToAll) {
  std::vector<std::vector<float>> mine;
  std::vector<const float*> pieces;
  for (int i = 0; i < size; ++i) mine.push_back({value_of(me, i, 0), value_of(me, i, 1), value_of(me, i, 2)});
  for (const auto& piece : mine) pieces.push_back(piece.data());
  std::vector<float> received(3 * static_cast<std::size_t>(size));
  expect(exchange_pieces(network, group, pieces, 3, received.data(), Seconds(0)), 0, 1 + 12.0 * size / 100);
  for (int i = 0; i < size; ++i)
    for (int k = 0; k < 3; ++k) EXPECT_EQ(received[3 * i + k], value_of(i, me, k));

  std::vector<float*> owned;
  for (int i = 0; i < size; ++i) {
    mine[i] = std::vector<float>(3, i == me ? static_cast<float>(me) : -1.0f);
    owned.push_back(mine[i].data());
  }
  gather_pieces(network, group, owned, 3, Seconds(0));
  for (int i = 0; i < size; ++i) EXPECT_EQ(mine[i], std::vector<float>(3, static_cast<float>(i)));
}

// Reported elsewhere: a deadlock above the eager limit with both sides in send, and neighbours that coincide.
TEST_F(CollectivesTest, Reports07And08LargeMessagesBothWaysAtOnceArriveByTheirTags) {
  const int next = (me + 1) % size, previous = (me + size - 1) % size;
  constexpr std::int64_t rows = 2048, h = 512;  // 4 MiB
  std::vector<float> one(rows * h, static_cast<float>(me)), two(rows * h, static_cast<float>(1000 + me)), in(rows * h);
  const Event a = send(network, group, {next, 1, {one.data(), rows, h}, false}, Seconds(0));
  const Event b = send(network, group, {next, 2, {two.data(), rows, h}, true}, Seconds(0));
  const double occupied = rows * h * 4 / 100.0;
  expect(a, 0, occupied);
  expect(b, occupied, 2 * occupied);
  // taken in the other order
  Arrival arrival = receive(network, group, previous, 2, {in.data(), rows, h});
  EXPECT_EQ(in, std::vector<float>(rows * h, static_cast<float>(1000 + previous)));
  EXPECT_DOUBLE_EQ(arrival.event.end().value, 2 * occupied + 0.5);
  EXPECT_EQ(arrival.header->draining, 1);
  arrival = receive(network, group, previous, 1, {in.data(), rows, h});
  EXPECT_EQ(in, std::vector<float>(rows * h, static_cast<float>(previous)));
  EXPECT_DOUBLE_EQ(arrival.event.end().value, occupied + 0.5);
  EXPECT_EQ(arrival.header->draining, 0);
  a.wait();
  b.wait();
  EXPECT_TRUE(a.done() && b.done());
}

TEST_F(CollectivesTest, OnTheWallClockMessagesEndWhileTheIssuingThreadIsBusy) {
  for (const bool threaded : {true, false}) {
    Network& lane = threaded ? beside : unaided;
    constexpr std::int64_t h = 1 << 18;  // 1 MiB from each
    const std::vector<float> mine(h, static_cast<float>(me));
    std::vector<float> all(static_cast<std::size_t>(size * h));
    int before = 0;
    for (int turn = 0; turn < 5; ++turn) {
      const Event event = all_gather_rows(lane, group, {mine.data(), 1, h}, {all.data(), size, h}, Seconds(0));
      const Seconds begun = wall.now();
      while (wall.now() - begun < Seconds(0.05))
        if (!threaded) lane.look();
      const Seconds looked = wall.now();
      event.wait();
      before += event.ran().end < looked ? 1 : 0;
    }
    EXPECT_GT(before, 0) << "messages stood still until somebody waited for them";
  }
}

TEST_F(CollectivesTest, OnTheWallClockNobodyWaitsBeforeTheResultIsNeeded) {
  const int next = (me + 1) % size, previous = (me + size - 1) % size;
  constexpr std::int64_t rows = 2048, h = 512;  // 4 MiB
  std::vector<float> out(rows * h, static_cast<float>(me)), in(rows * h, -1), all(static_cast<std::size_t>(size) * 4);
  const std::vector<float> mine(4, static_cast<float>(me));
  // what is received is issued first: nobody waits for it here, and a gather passes
  const Arrival arrival = receive(beside, group, previous, 3, {in.data(), rows, h});
  const Event gathered = all_gather_rows(beside, group, {mine.data(), 1, 4}, {all.data(), size, 4}, Seconds(1e9));
  gathered.wait();
  for (int i = 0; i < size; ++i) EXPECT_EQ(all[4 * static_cast<std::size_t>(i)], static_cast<float>(i));
  EXPECT_EQ(gathered.end(), Seconds(0)) << "no virtual time";
  EXPECT_LE(gathered.ran().start, gathered.ran().end);
  EXPECT_FALSE(arrival.event.done());
  all_gather_rows(beside, group, {mine.data(), 1, 4}, {all.data(), size, 4}, Seconds(0)).wait();  // all have looked
  const Event left = send(beside, group, {next, 3, {out.data(), rows, h}, true}, Seconds(0));
  arrival.event.wait();
  EXPECT_EQ(in, std::vector<float>(rows * h, static_cast<float>(previous)));
  EXPECT_EQ(arrival.header->draining, 1);
  EXPECT_GE(arrival.event.ran().end, gathered.ran().end);
  left.wait();
  EXPECT_TRUE(left.done());
}

TEST_F(CollectivesTest, SpansOfTheLaneDoNotOverlapOnTheWallClock) {
  std::vector<float> data(static_cast<std::size_t>(size) * 1024);
  std::vector<Event> events;
  for (int i = 0; i < 8; ++i) {
    const Matrix<float> all{data.data() + 128 * size * i, size, 128};
    events.push_back(all_gather_rows(beside, group, all.slice(me, 1), all, Seconds(0)));
  }
  for (const Event& e : events) e.wait();
  std::ranges::sort(events, {}, [](const Event& e) { return e.ran().start; });  // they may end in any order
  for (std::size_t i = 1; i < events.size(); ++i) EXPECT_GE(events[i].ran().start, events[i - 1].ran().end);
}

TEST_F(CollectivesTest, TellWhetherAllMembersSayTheSame) {
  for (Network* either : {&network, &beside}) {
    EXPECT_TRUE(all_say(*either, group, 7));
    EXPECT_EQ(all_say(*either, group, me == 0 ? 8 : 7), size == 1);
    EXPECT_TRUE(all_say(*either, group, ~std::uint64_t{0}));
  }
  EXPECT_EQ(clock.now(), Seconds(0));
}

TEST_F(CollectivesTest, AnErrorLeavesWhatIsUnderWay) {
  std::vector<float> in(4);
  const auto fails = [&] {
    Network lost(wall);
    receive(lost, group, me, 9, {in.data(), 1, 4});  // never comes
    throw InternalError("something else");
  };
  EXPECT_THROW(fails(), InternalError);
}

TEST_F(CollectivesTest, AMessageKeepsTheMemoryItWasGivenUntilItHasLeft) {
  auto memory = std::make_shared<std::vector<float>>(4, 1.0f);
  const std::weak_ptr<std::vector<float>> watched = memory;
  const Matrix<const float> matrix{memory->data(), 1, 4};
  std::vector<float> in(4);
  const Event event = send(network, group, {me, 0, matrix, false, std::move(memory)}, Seconds(0));
  EXPECT_FALSE(watched.expired());
  receive(network, group, me, 0, {in.data(), 1, 4});
  event.wait();
  EXPECT_EQ(in, std::vector<float>(4, 1.0f));
  EXPECT_TRUE(watched.expired());
}

// Reported elsewhere: messages over 2 GiB overflowed an int count.
TEST(Reports12, CountsAndDisplacementsAreInRowsSoBytesMayPass2GiB) {
  constexpr std::int64_t row_bytes = 7168 * 4;
  const std::vector<std::int64_t> rows = {100'000, 0, 150'000, 50'000};
  const RowLayout layout(rows);
  EXPECT_GT(layout.total * row_bytes, std::int64_t{1} << 31);
  EXPECT_EQ(layout.total, 300'000);
  EXPECT_EQ(layout.counts, (std::vector<int>{100'000, 0, 150'000, 50'000}));
  EXPECT_EQ(layout.displacements, (std::vector<int>{0, 100'000, 100'000, 250'000}));
}

TEST(Reports12, RowsAreRefusedOnlyWhereTheirNumberItselfDoesNotFit) {
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
  EXPECT_EQ(RowLayout(std::vector<std::int64_t>{most, 0}).displacements[1], most);
  EXPECT_THROW(RowLayout(std::vector<std::int64_t>{most + 1}), InternalError);
  EXPECT_THROW(RowLayout(std::vector<std::int64_t>{most, 1, 1}), InternalError);  // the third one's displacement
  EXPECT_THROW(RowLayout(std::vector<std::int64_t>{-1}), InternalError);
}

}  // namespace
}  // namespace spillway::device
