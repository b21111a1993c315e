#pragma once
// Cases for tests that compare runs with each other, with the plan and with the serial reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "app/case_reader.hpp"
#include "run/policy_run.hpp"

namespace spillway::test {

/// The session of this process; lives as long as all tests.
const Session& session();

/// inputs/runs/tiny.toml with `settings` as --set takes them.
Case tiny_case(std::vector<std::string> settings);

struct Layout {
  int pipeline, data, expert, tensor = 1;
  int ranks() const { return pipeline * data * tensor; }
};
/// Settings that lay a case out; the micro-batches keep a global batch of `sequences`.
std::vector<std::string> settings_of(Layout layout, int sequences, int micro_batch_size = 1);

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b);

/// A parameter of tests: a layout with settings of its own.
struct Variant {
  const char* name;
  Layout layout;
  std::vector<std::string> settings;
};
void PrintTo(const Variant& variant, std::ostream* out);
/// For INSTANTIATE_TEST_SUITE_P.
std::string name_of(const testing::TestParamInfo<Variant>& info);

/// A checked case with everything its policies share. Collective over the world, whose size must be the case's.
class Trial {
 public:
  explicit Trial(Case c);
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  const Case& run_case() const { return case_; }
  const RoutingSource& routing() const { return *routing_; }
  const RunContext& context() const { return context_; }

  PolicyRun run(const std::string& policy) const { return PolicyRunner(context_, policy).run(); }

  /// Books of one iteration of a rank as the plan foresees them, from the operator table and the routing alone: nothing
  /// is run.
  ByteLedger forecast(const std::string& policy, int rank, std::int64_t iteration) const;
  /// The largest forecast of any rank.
  Bytes forecast_peak(const std::string& policy, std::int64_t iteration) const;

 private:
  ExpertRows rows(int rank, std::int64_t iteration, int micro_batch, const StageBlock& block) const;

  Case case_;
  std::unique_ptr<RoutingSource> routing_;
  MachineTime time_;
  RunContext context_;
};

/// Sum over all ranks of a hash of every parameter's gradient, element by element with its place in the model: equal for
/// equal gradients however the model is laid out. Of the runner's last iteration. Collective over the world.
std::uint64_t gradient_fingerprint(PolicyRunner& runner);

/// Checksum of every completed iteration by its index; all attempts at an iteration must have found the same one.
std::map<std::int64_t, std::uint64_t> checksums(const PolicyRun& run);

}  // namespace spillway::test
