#pragma once
// Where every row of a dispatch goes: made on the host from the imposed choices and the group's table of rows per expert,
// after the gate. Needed again by combine and by both gradients. Control data, outside the memory cap.
#include <cstdint>
#include <optional>
#include <vector>

#include "device/matrix.hpp"
#include "workload/shape/slices.hpp"

namespace spillway::device {

/// Of a whole dispatch or of one slice of it. Rows sent number all tokens * k, or those of the slice; by destination,
/// then expert, then token.
struct RowMap {
  std::int64_t tokens = 0, choices_per_token = 0;
  std::vector<std::int64_t> sent_rows, received_rows;  ///< per member of the expert group
  std::vector<std::int64_t> offsets;                   ///< [local experts + 1], rows of each in expert order
  std::vector<std::int32_t> choices;                   ///< [tokens, k] experts, imposed
  std::vector<std::int32_t> position;                  ///< [tokens, k] row of each slot in the whole send order
  std::vector<std::int32_t> row_of_sent;               ///< [rows sent] row in the whole send order of each row sent
  std::vector<std::int32_t> slot_of_sent;              ///< [rows sent] slot t * k + j of each row sent
  std::vector<std::int32_t> token_of_sent;             ///< [rows sent]
  std::vector<std::int32_t> weight_of_sent;            ///< [rows sent] element of the router state with its weight
  std::vector<std::int32_t> weight_of_slot;            ///< [tokens * k] the same in slot order
  std::vector<std::int32_t> expert_order;              ///< [rows received] row in expert order of each row as received
  std::int64_t active_experts = 0;                     ///< local experts with rows

  std::int64_t rows() const { return offsets.back(); }  ///< received
  std::int64_t rows_sent() const { return static_cast<std::int64_t>(row_of_sent.size()); }
  Matrix<const std::int32_t> choice_matrix() const { return {choices.data(), tokens, choices_per_token}; }
  Matrix<const std::int32_t> position_matrix() const { return {position.data(), tokens, choices_per_token}; }
};

/// Rows leave in expert order (experts of a rank are contiguous), in token order within an expert; they are computed in
/// expert order, in the order of their sources within an expert. `table` [members, experts] holds every member's rows
/// per expert, `me` is this member, `choices` [tokens, k] its own. With a slice, all that is said of rows sent and
/// received, offsets and active experts are those of the slice; what belongs to tokens (choices, position,
/// weight_of_slot) is not cut. The slices together hold every row once, and an expert's rows of a slice are those that
/// follow its rows of the slices before. Throws InternalError when table and choices disagree.
RowMap make_row_map(Matrix<const std::int32_t> choices, Matrix<const std::int64_t> table, int me,
                    std::optional<Slice> slice = std::nullopt);

}  // namespace spillway::device
