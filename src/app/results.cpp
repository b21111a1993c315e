#include "app/results.hpp"

#include <cstdio>

#include "app/option_table.hpp"
#include "metrics/atomic_file.hpp"
#include "metrics/hash.hpp"
#include "metrics/report_csv.hpp"
#include "metrics/report_json.hpp"
#include "metrics/report_text.hpp"

namespace spillway::app {

void write_results(Report& report, const Case& c, const std::filesystem::path& folder, bool csv_per_rank) {
  report.config = config_json(c);
  report.hash = result_hash(comparable_text(c));
  const std::vector<Evaluation> evaluations = evaluate(report);
  fmt::print("{}", report_text(report, evaluations));
  std::fflush(stdout);  // shown even where it cannot be written
  write_json(report, evaluations, folder / "result.json");
  write_atomically(folder / "iterations.csv", iterations_csv(report));
  if (csv_per_rank) write_atomically(folder / "rank_iterations.csv", rank_iterations_csv(report));
}

}  // namespace spillway::app
