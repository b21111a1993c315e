#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/error.hpp"
#include "workload/routing/trace.hpp"

namespace spillway {
namespace {

constexpr std::string_view header = "iteration,layer,rank,tokens";
constexpr std::int64_t max_tokens = std::int64_t{1} << 36;

struct Row {
  std::int64_t iteration = 0, layer = 0, rank = 0, tokens = 0;
  std::int64_t line = 0;
  auto place() const { return std::array{iteration, layer, rank}; }
};

/// The four whole numbers of a line; nullopt for anything else.
std::optional<Row> parse_row(std::string_view text, std::int64_t line) {
  Row row{.line = line};
  const char* at = text.data();
  const char* end = at + text.size();
  std::int64_t* const fields[] = {&row.iteration, &row.layer, &row.rank, &row.tokens};
  for (std::int64_t* field : fields) {
    if (field != fields[0] && (at == end || *at++ != ',')) return std::nullopt;
    const auto [next, error] = std::from_chars(at, end, *field);
    if (error != std::errc() || *field < 0 || *field > max_tokens) return std::nullopt;
    at = next;
  }
  return at == end ? std::optional(row) : std::nullopt;
}

/// All rows in the order of the file, each parsed on its own.
std::vector<Row> parse_rows(std::string_view text, std::string_view name) {
  std::vector<Row> rows;
  std::int64_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    if (number == 1) {
      require_input(line == header, "{}:1: the header is '{}', expected '{}'", name, line.substr(0, 80), header);
      continue;
    }
    const std::optional<Row> row = parse_row(line, number);
    require_input(row.has_value(), "{}:{}: '{}' is not four whole numbers iteration,layer,rank,tokens in [0, 2^36]",
                  name, number, line.substr(0, 80));
    rows.push_back(*row);
  }
  require_input(number > 0, "{}:1: the file is empty, expected the header '{}'", name, header);
  require_input(!rows.empty(), "{}:{}: no loads after the header", name, number);
  return rows;
}

/// Sorts by (iteration, layer, rank) and refuses repetitions and gaps.
Row sort_and_check(std::vector<Row>& rows, std::string_view name) {
  const std::int64_t last_line = rows.back().line;
  std::ranges::stable_sort(rows, {}, &Row::place);
  Row extent;  // one above the largest of each
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    require_input(i == 0 || rows[i - 1].place() != row.place(),
                  "{}:{}: iteration {}, layer {}, rank {} again, first given on line {}", name, row.line, row.iteration,
                  row.layer, row.rank, rows[i > 0 ? i - 1 : 0].line);
    extent.iteration = std::max(extent.iteration, row.iteration + 1);
    extent.layer = std::max(extent.layer, row.layer + 1);
    extent.rank = std::max(extent.rank, row.rank + 1);
  }
  Row expected;
  for (const Row& row : rows) {
    require_input(
        row.place() == expected.place(),
        "{}:{}: the file ends without iteration {}, layer {}, rank {}: it must have every one of {} iterations, "
        "{} layers and {} ranks",
        name, last_line, expected.iteration, expected.layer, expected.rank, extent.iteration, extent.layer,
        extent.rank);
    if (++expected.rank == extent.rank) expected.rank = 0, ++expected.layer;
    if (expected.layer == extent.layer) expected.layer = 0, ++expected.iteration;
  }
  require_input(expected.place() == std::array{extent.iteration, std::int64_t{0}, std::int64_t{0}},
                "{}:{}: the file ends before iteration {}, layer {}, rank {}", name, last_line, expected.iteration,
                expected.layer, expected.rank);
  require_input(extent.rank % Trace::blocks == 0, "{}:{}: {} ranks are no multiple of {} (rank r holds block r mod {})",
                name, last_line, extent.rank, Trace::blocks, Trace::blocks);
  return extent;
}

}  // namespace

Trace parse_trace(std::string_view text, std::string_view name) {
  std::vector<Row> rows = parse_rows(text, name);
  const Row extent = sort_and_check(rows, name);
  Trace trace{extent.iteration, extent.layer, {}};
  trace.tokens.resize(trace.iterations * trace.layers * Trace::blocks);
  for (const Row& row : rows) {
    std::int64_t* layer = trace.tokens.data() + (row.iteration * trace.layers + row.layer) * Trace::blocks;
    layer[row.rank % Trace::blocks] += row.tokens;
    require_input(row.rank + 1 < extent.rank || std::any_of(layer, layer + Trace::blocks, [](auto t) { return t > 0; }),
                  "{}:{}: iteration {}, layer {} has no tokens on any rank", name, row.line, row.iteration, row.layer);
  }
  return trace;
}

Trace read_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code unknown;
  require_input(std::filesystem::is_regular_file(path, unknown) && file, "routing.trace = '{}': cannot be read", path);
  return parse_trace(std::string{std::istreambuf_iterator<char>(file), {}}, path);
}

}  // namespace spillway
