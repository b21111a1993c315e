// Random small cases under many policies, and random decisions that differ from rank to rank: gradients equal the
// oracle's bit for bit, memory is what the books say and below the cap, seconds are the projected ones, and nobody waits
// forever. SPILLWAY_CAMPAIGN_CASES says how many cases, SPILLWAY_CAMPAIGN_FIRST which is the first.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "campaign_policies.hpp"
#include "run/policy_projection.hpp"

namespace spillway::test {
namespace {

constexpr Seconds patience{100};  // of a rank that waits

std::int64_t number(const char* variable, std::int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::stoll(text) : otherwise;
}

/// Calls `check(index)` for each case of the campaign. A failure, and an exception above all, says which case it was.
template <class Check>
void for_each_case(std::int64_t count, const Check& check) {
  const std::int64_t first = number("SPILLWAY_CAMPAIGN_FIRST", 0);
  const std::int64_t end = first + number("SPILLWAY_CAMPAIGN_CASES", count);
  for (std::int64_t i = first; i < end; ++i) {
    SCOPED_TRACE(fmt::format("SPILLWAY_CAMPAIGN_FIRST={} at {} ranks", i, session().world()));
    try {
      check(i);
    } catch (const std::exception&) {
      fmt::print(stderr, "rank {}: case {} of {} ranks\n", session().rank(), i, session().world());
      throw;
    }
  }
}

/// A case, and whoever ends the job when a run of it hangs.
class Subject {
 public:
  Subject(Case c, std::string arguments) : trial_(std::move(c)), arguments_(std::move(arguments)) {}
  const Trial& trial() const { return trial_; }

  PolicyRun run(const std::string& policy) const {
    Watchdog watchdog(patience, who(policy));
    RunContext context = trial_.context();
    context.watchdog = &watchdog;
    if (policy == "replay") context.replayed = shared_replay(trial_.run_case(), session());
    return PolicyRunner(context, policy).run();
  }
  PlainRun run(const PolicyOf& policies, const std::string& name) const {
    Watchdog watchdog(patience, who(name));
    return run_policy(trial_, policies, &watchdog);
  }

 private:
  std::string who(const std::string& policy) const {
    return fmt::format("rank {} under {} of {}", session().rank(), policy, arguments_);
  }

  Trial trial_;
  std::string arguments_;
};

/// The case without limits on memory.
Case roomy(Case c) {
  c.memory.cap = c.memory.host_cap = Bytes(std::int64_t{1} << 40);
  return c;
}

using Checksums = std::map<std::int64_t, std::uint64_t>;

/// Completed iterations have the oracle's gradients; a policy that has completed none shows nothing.
void expect_same_gradients(const PolicyRun& run, const Checksums& oracle) {
  for (const auto& [iteration, checksum] : checksums(run))
    EXPECT_EQ(checksum, oracle.at(iteration)) << "iteration " << iteration;
}

void expect_memory_as_in_the_books(const PolicyRun& run, const Case& c) {
  for (const RankRecord& rank : run.ranks) {
    EXPECT_EQ(rank.peak.activation, *rank.predicted_activation_peak) << "rank " << rank.rank;
    EXPECT_LE(rank.peak.total, c.memory.cap) << "rank " << rank.rank;
    EXPECT_LE(rank.peak_host_bytes.value_or(Bytes(0)), c.memory.host_cap) << "rank " << rank.rank;
  }
}

/// Seconds, FLOPs and bytes to the last bit. Deciding takes wall time on either clock.
void expect_equal(RankIteration projected, RankIteration run) {
  EXPECT_EQ(projected.decision_seconds, Seconds(0));
  run.decision_seconds = Seconds(0);
  EXPECT_EQ(projected, run);
}

void expect_equal(const RankRecord& projected, const RankRecord& run, const std::vector<IterationRecord>& iterations) {
  SCOPED_TRACE(fmt::format("rank {}", run.rank));
  // In a lost iteration ranks of a run hold more until they have learnt of the loss.
  if (std::all_of(iterations.begin(), iterations.end(), [](const auto& i) { return i.completed(); })) {
    EXPECT_EQ(projected.peak, run.peak);
    EXPECT_EQ(projected.peak_host_bytes, run.peak_host_bytes);
  }
  for (std::size_t i = 0; i < iterations.size(); ++i)
    if (iterations[i].completed()) expect_equal(projected.iterations.at(i), run.iterations.at(i));
}

void expect_equal(const IterationRecord& projected, const IterationRecord& run) {
  EXPECT_EQ(projected.index, run.index);
  EXPECT_EQ(projected.policy, run.policy);
  EXPECT_EQ(projected.completed(), run.completed());
  if (!run.completed()) return;  // a run drains what a projection leaves
  IterationRecord without_data = run;
  without_data.loss.reset();
  without_data.gradient_checksum.reset();
  EXPECT_EQ(projected, without_data);
}

/// The same events at the same virtual seconds, the same bytes. Rank 0 projects; the others have nothing to compare with.
void expect_projected(const PolicyRun& run, const Trial& trial) {
  if (session().rank() != 0) return;
  const Case& c = trial.run_case();
  const MachineTime time(c.machine);
  const ProjectionSetting setting{c, trial.routing(), trial.context().schedule, time};
  const PolicyRun projected = project_policy(setting, run.policy, c.training.iterations);
  ASSERT_EQ(projected.iterations.size(), run.iterations.size());
  for (std::size_t i = 0; i < run.iterations.size(); ++i) {
    SCOPED_TRACE(fmt::format("attempt {}", i));
    expect_equal(projected.iterations[i], run.iterations[i]);
  }
  ASSERT_EQ(projected.ranks.size(), run.ranks.size());
  for (std::size_t r = 0; r < run.ranks.size(); ++r) expect_equal(projected.ranks[r], run.ranks[r], run.iterations);
  const std::vector<Seconds> seconds = project_seconds(setting, run.policy, c.training.iterations);
  for (std::size_t i = 0; i < seconds.size(); ++i) EXPECT_EQ(seconds[i], run.iterations.at(i).seconds) << i;
}

/// One policy of the table. Where it does not fit at balance it is not run; returns whether it was.
bool check_policy(const std::string& policy, const Subject& subject, const Checksums& oracle) {
  SCOPED_TRACE(policy);
  const Trial& trial = subject.trial();
  const PolicyRun run = subject.run(policy);
  const bool adapts = make_policy(policy, trial.run_case().provisioning.options)->adapts();
  if (run.infeasible) {
    EXPECT_FALSE(adapts) << *run.infeasible;
    return false;
  }
  const bool lost = std::any_of(run.iterations.begin(), run.iterations.end(), [](auto& i) { return !i.completed(); });
  EXPECT_FALSE(adapts && lost) << "out of memory: " << run.iterations.back().oom.value_or(OutOfMemory{}).operator_name;
  if (!lost) {
    EXPECT_THAT(run.reasons, testing::IsEmpty());
    EXPECT_EQ(checksums(run).size(), oracle.size());
  }
  for (const std::string& reason : run.reasons) EXPECT_THAT(reason, testing::HasSubstr("ran out of memory"));
  expect_same_gradients(run, oracle);
  expect_memory_as_in_the_books(run, trial.run_case());
  expect_projected(run, trial);
  return true;
}

/// Decisions by chance, without limits on memory.
PlainRun check_random(RandomPolicy::Options options, const Subject& subject, const Checksums& oracle) {
  const std::string name = fmt::format("decisions by chance, seed {}", options.seed);
  SCOPED_TRACE(name);
  const PolicyOf policies = random_policies(options);
  const PlainRun run = subject.run(policies, name);
  EXPECT_THAT(run.faults, testing::IsEmpty());
  EXPECT_EQ(run.checksums, oracle);
  const RankPeaks& mine = run.peaks[static_cast<std::size_t>(session().rank())];
  EXPECT_EQ(mine.activation, mine.predicted_activation);
  if (session().rank() != 0) return run;
  const PlainProjection projected = project(subject.trial(), policies);
  EXPECT_EQ(projected.seconds, run.seconds);
  for (std::size_t r = 0; r < run.peaks.size(); ++r)
    EXPECT_EQ(projected.activation_peaks[r].value, run.peaks[r].activation) << "rank " << r << ", projected";
  return run;
}

/// The file that rank 0 writes for all.
class SharedFile {
 public:
  explicit SharedFile(const std::string& text) {
    const auto folder = std::filesystem::temp_directory_path();
    path_ = session().broadcast((folder / fmt::format("spillway-decisions-{}.jsonl", getpid())).string());
    if (session().rank() == 0) std::ofstream(path_) << text;
  }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  ~SharedFile() {
    if (session().rank() == 0) std::filesystem::remove(path_);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Decisions read back from a file give the run that they were exported from.
void check_replay(const PlainRun& expected, Case c, const std::string& arguments) {
  SCOPED_TRACE("replay");
  const SharedFile file(expected.decisions);
  c.provisioning.options.replay_file = file.path();
  const PolicyRun run = Subject(std::move(c), arguments).run("replay");
  EXPECT_FALSE(run.infeasible) << run.infeasible.value_or("");
  EXPECT_THAT(run.reasons, testing::IsEmpty());
  EXPECT_EQ(checksums(run), expected.checksums);
  for (std::size_t i = 0; i < std::min(expected.seconds.size(), run.iterations.size()); ++i)
    EXPECT_EQ(run.iterations[i].seconds, expected.seconds[i]) << "iteration " << i;
  for (const RankRecord& rank : run.ranks) {
    const RankPeaks peaks{rank.peak.total.value, rank.peak.activation.value, rank.predicted_activation_peak->value};
    EXPECT_EQ(peaks, expected.peaks[static_cast<std::size_t>(rank.rank)]) << "rank " << rank.rank;
  }
}

constexpr const char* adapting[] = {"flexible:greedy", "flexible:ratio", "full:slices"};

/// Which of the static policies are run beside those that adapt.
std::vector<std::string> static_policies(std::int64_t index) {
  const std::vector<std::string> all = {"keep", "unified", "full", "kuai", "selective", "adapipe", "paged"};
  const auto at = static_cast<std::size_t>(index);
  return {all[3 * at % 7], all[(3 * at + 1) % 7], all[(3 * at + 2) % 7]};
}

/// A cap that static policies fit under at balance, and that a spike may exceed.
Case wider(const RandomCase& random, std::int64_t index) {
  Case c = random.drawn;
  const double share = index % 3 == 0 ? 1.3 : index % 3 == 1 ? 0.95 : 0.8;
  c.memory.cap = Bytes(static_cast<std::int64_t>(static_cast<double>(random.keep.value) * share));
  return c;
}

TEST(Campaign, RandomCasesAreExactUnderEveryPolicy) {
  std::map<std::string, int> ran;
  std::int64_t sliced = 0;
  for_each_case(5, [&](std::int64_t index) {
    const RandomCase random = random_case(session().world(), index);
    const std::string arguments = as_arguments(random.settings);
    SCOPED_TRACE(arguments);
    const Subject subject(random.drawn, arguments), unlimited(roomy(random.drawn), arguments);
    const Checksums oracle = checksums(subject.run("oracle"));
    ASSERT_EQ(oracle.size(), static_cast<std::size_t>(random.drawn.training.iterations));
    for (const char* policy : adapting) ran[policy] += check_policy(policy, subject, oracle);
    const Subject wide(wider(random, index), arguments);
    for (const std::string& policy : static_policies(index)) ran[policy] += check_policy(policy, wide, oracle);
    const auto seed = static_cast<std::uint64_t>(index);
    sliced += check_random({seed, 1, false}, unlimited, oracle).slices;
    check_replay(check_random({seed, 0.3, true}, unlimited, oracle), roomy(random.drawn), arguments);
  });
  EXPECT_GT(sliced, 0);
  for (const char* policy : adapting) EXPECT_GT(ran[policy], 0) << policy;
  std::string counts;
  for (const auto& [policy, times] : ran) counts += fmt::format(" {} {}", policy, times);
  RecordProperty("cases", counts);
  if (session().rank() == 0) fmt::print("ran{}; {} dispatches in slices on rank 0\n", counts, sliced);
}

/// One case of each kind of exchange; the plans are what varies.
std::vector<std::string> plan_case(int ranks, std::int64_t variant) {
  const int expert = ranks >= 4 && variant % 2 == 0 ? ranks / 2 : 2;
  std::vector<std::string> settings =
      joined(settings_of(variant % 4 < 2 ? Layout{ranks / expert, expert, expert} : Layout{1, ranks, expert},
                         4 * ranks),
             {"training.micro_batches=2", "training.iterations=2", "model.num_hidden_layers=4", "model.num_experts=8",
              "model.num_experts_per_tok=2", "routing.preset=hot_rank", "routing.peak=1.9", "routing.reference_ranks=2",
              "routing.reference_stages=1"});
  if (variant % 3 == 1) settings.push_back("model.inventory=with_combine");
  return settings;
}

TEST(RandomPlans, ThatDifferFromRankToRankNeverDeadlock) {
  constexpr std::int64_t variants = 12, plans_per_case = 5;
  std::unique_ptr<Subject> subject;
  Checksums oracle;
  std::int64_t made = -1;
  for_each_case(20, [&](std::int64_t index) {
    const std::int64_t variant = index / plans_per_case % variants;
    const auto settings = plan_case(session().world(), variant);
    SCOPED_TRACE(as_arguments(settings));
    if (variant != made) {
      subject.reset();
      subject = std::make_unique<Subject>(roomy(tiny_case(settings)), as_arguments(settings));
      oracle = checksums(subject->run("oracle"));
      made = variant;
    }
    check_random({static_cast<std::uint64_t>(index) + 1000, 0.4, true}, *subject, oracle);
  });
}

}  // namespace
}  // namespace spillway::test
