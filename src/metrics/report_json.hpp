#pragma once
// result.json. docs/result.schema.json describes every field with its unit.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "metrics/report.hpp"

namespace spillway {

/// The whole result. What does not apply is null; no field is ever missing. 64-bit checksums are hexadecimal text.
/// `evaluations` is evaluate(report).
nlohmann::ordered_json to_json(const Report& report, const std::vector<Evaluation>& evaluations);

/// Writes to_json to `path`, atomically (see write_atomically for errors).
void write_json(const Report& report, const std::vector<Evaluation>& evaluations, const std::filesystem::path& path);

}  // namespace spillway
