#pragma once
// A run small enough to work out by hand: two ranks, three iterations of 100 tokens, one OOM, two restarts of 10 s.
#include <string>
#include <vector>

#include "metrics/report.hpp"

namespace spillway::sample {

/// Iteration `index` that takes `seconds` under `policy`.
inline IterationRecord iteration(std::int64_t index, double seconds, const std::string& policy) {
  IterationRecord record;
  record.index = index;
  record.seconds = Seconds(seconds);
  record.policy = policy;
  return record;
}

inline RankIteration part(double mitigation, std::int64_t mitigation_flops = 0) {
  RankIteration own;
  own.mitigation_seconds = Seconds(mitigation);
  own.mitigation_flops = Flops(mitigation_flops);
  return own;
}

/// A run of `records` on as many ranks as `parts` has rows.
inline PolicyRun make_run(const std::string& policy, std::vector<IterationRecord> records,
                          const std::vector<std::vector<RankIteration>>& parts) {
  PolicyRun run;
  run.policy = policy;
  run.iterations = std::move(records);
  for (std::size_t r = 0; r < parts.size(); ++r) {
    RankRecord rank;
    rank.rank = static_cast<int>(r);
    rank.host = "node1";
    rank.iterations = parts[r];
    run.ranks.push_back(rank);
  }
  return run;
}

/// Three iterations of 2 s: 6 s in all.
inline PolicyRun oracle() {
  const std::vector<RankIteration> idle(3);
  return make_run("oracle", {iteration(0, 2, "oracle"), iteration(1, 2, "oracle"), iteration(2, 2, "oracle")},
                  {idle, idle});
}

/// 2.5 s; 1.5 s lost (1.75 s with draining); restart; 4 s under full; restart; 2.25 s. All time 10.25 + 20 = 30.25 s.
inline PolicyRun selective() {
  IterationRecord lost = iteration(1, 1.75, "selective");
  lost.oom = OutOfMemory{1, Seconds(1.5), "fc1"};
  IterationRecord redone = iteration(1, 4, "full");
  redone.conservative = redone.restarted = true;
  redone.restart_seconds_measured = Seconds(8);
  IterationRecord back = iteration(2, 2.25, "selective");
  back.restarted = true;
  back.restart_seconds_measured = Seconds(9);
  return make_run("selective", {iteration(0, 2.5, "selective"), lost, redone, back},
                  {{part(0.25, 10), part(0.5, 7), part(2, 100), part(0.125, 5)},
                   {part(1.0, 40), part(0.5, 7), part(2, 100), part(0.125, 5)}});
}

/// 4 and 5 model FLOPs per token, 1000 FLOP/s per rank, 10 s charged for a restart.
inline RunFacts facts() {
  RunFacts f;
  f.tokens_per_iteration = 100;
  f.model_flops_per_token_causal = 4;
  f.model_flops_per_token_noncausal = 5;
  f.peak_flops = 1000;
  f.peak_source = "machine file mini";
  f.ranks = 2;
  f.restart_seconds = Seconds(10);
  return f;
}

inline Report report() {
  Report r;
  r.case_name = "demo";
  r.machine = "mini";
  r.hash = "ab12cd34";
  r.workload_checksum = 0x00000000DEADBEEFu;
  r.config = {{"num_experts", 8}};
  r.facts = facts();
  r.runs = {oracle(), selective()};
  return r;
}

}  // namespace spillway::sample
