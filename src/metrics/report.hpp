#pragma once
// Everything a result says, before it is formatted.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "metrics/margin_curve.hpp"
#include "metrics/summary.hpp"

namespace spillway {

/// Version of result.json; docs/result.schema.json describes it.
inline constexpr const char* result_schema = "spillway-result-1";

struct Report {
  bool virtual_clock = true;
  bool phantom_data = false;
  std::string case_name;
  std::string machine;  ///< name of the machine file
  std::string hash;     ///< result_hash of what compared results must share
  std::uint64_t workload_checksum = 0;
  nlohmann::ordered_json config = nlohmann::ordered_json::object();       ///< the effective case, every key
  nlohmann::ordered_json environment = nlohmann::ordered_json::object();  ///< versions, hosts, binding, warnings
  RunFacts facts;
  std::vector<std::string> reasons;           ///< faults of no single policy (verification, differing checksums)
  std::vector<PolicyRun> runs;                ///< in the order of the case
  std::vector<MarginPoint> margins;           ///< projected; empty where the case asks for none
  std::optional<PolicyRun> projected_oracle;  ///< stands in where the oracle does not fit the machine
  std::string oracle_reason = "oracle is not among the policies of the case";  ///< said where there is none
};

/// Every reason why the report is INVALID, those of a policy with its name in front. Empty: VALID. An infeasible policy
/// is no fault.
std::vector<std::string> invalid_reasons(const Report& report);

/// Evaluates every run against the oracle: the run called "oracle" if it was run and is valid, else the projected one.
/// A report with any reason has no figure of merit at all.
std::vector<Evaluation> evaluate(const Report& report);

}  // namespace spillway
