#pragma once
// Slices of a dispatch. Where the expert rows of a layer do not fit at once, they are sent, computed and returned slice
// by slice. All of it follows from the gate table, which every member of the expert group has: no further messages.
//
// The rows of an expert lie in the order of their sources, then of their tokens. They are computed in tiles; the last
// tile of an expert may be short. The tiles of a member are those of its experts, one expert after the other, and slice
// j is its tiles [j c, (j + 1) c). Tiles are the same with and without slices, hence so are the results, bit for bit.
// Of the rows that a source sends to an expert, a slice holds a contiguous range.
#include <cstdint>
#include <span>
#include <vector>

#include "workload/shape/tensors.hpp"

namespace spillway {

/// Rows per tile of every grouped product. Results depend on the tiling, so every policy uses this one, a slice of rows
/// is whole tiles, and a remainder of a single row is padded with a row of zeros (a one-row product would take another
/// path through the library, with another order of summation). 256 measured best on one core at hidden 512, expert hidden
/// 256 and about 128 rows per expert: smaller tiles read and write the weight gradients more often.
inline constexpr std::int64_t row_tile = 256;

/// Rows that every member of an expert group sends to every expert. The experts of a member are contiguous.
struct GateTable {
  std::vector<std::int64_t> rows;  ///< [members * experts], a member's row after the other
  std::int64_t members = 0, experts = 0;

  std::int64_t local_experts() const { return experts / members; }
  std::int64_t of(std::int64_t source, std::int64_t expert) const { return rows[source * experts + expert]; }
};

/// One slice of every member; `tiles_per_slice` (c, at least 1) is one choice of the whole expert group.
struct Slice {
  std::int64_t tiles_per_slice = 1;
  std::int64_t index = 0;        ///< j; members whose tiles have run out have empty slices
  std::int64_t tile = row_tile;  ///< rows of a tile; another size only where nothing is computed
};

/// The part of a gate table that lies in a slice.
struct GateSlice {
  GateTable table;                  ///< rows in the slice
  std::vector<std::int64_t> first;  ///< [members * experts] the first of them among the rows from source to expert
};

/// Tiles of a member. This and all below throw InternalError for a table whose extents or rows, or a slice whose numbers
/// make no sense.
std::int64_t tiles(const GateTable& table, std::int64_t member, std::int64_t tile = row_tile);

/// Slices of a dispatch: as many as the member with most tiles needs, the same on all; 0 where no row is sent.
std::int64_t slice_count(const GateTable& table, std::int64_t tiles_per_slice, std::int64_t tile = row_tile);

/// What `slice` holds of every (source, expert).
GateSlice cut(const GateTable& table, Slice slice);

/// What the members of a group receive and send, in the whole dispatch and in slices of any size: asked again and again
/// about one table, which must outlive it. Throws as above.
class DispatchRows {
 public:
  /// Of every member in every slice, [slices][members].
  using Slices = std::vector<std::vector<ExpertRows>>;

  explicit DispatchRows(const GateTable& table, std::int64_t tile = row_tile);
  /// Of every member [members] in the whole dispatch; `sent` is empty.
  const std::vector<ExpertRows>& whole() const { return whole_; }
  std::int64_t slice_count(std::int64_t tiles_per_slice);
  /// Good until slices of another size are asked for.
  const Slices& in_slices(std::int64_t tiles_per_slice);
  /// Of one member, [slices]: less work than for all.
  std::vector<ExpertRows> in_slices_of(std::int64_t member, std::int64_t tiles_per_slice);

 private:
  /// Calls visit(expert, slice, rows) for what every slice takes of the member's experts.
  template <class Visit>
  void divide(std::int64_t member, std::int64_t tiles_per_slice, const Visit& visit) const;

  const GateTable* table_;
  std::int64_t tile_, most_tiles_ = 0;
  std::vector<std::int64_t> received_;  ///< [experts]
  std::vector<std::int64_t> tiles_;     ///< [experts]; with most_tiles_ found when slices are asked for
  std::vector<ExpertRows> whole_;
  std::int64_t member_ = -1;          ///< of before_; -1: none yet
  std::vector<std::int64_t> before_;  ///< [experts] rows of sources before the member
  std::int64_t tiles_per_slice_ = 0;  ///< of slices_; 0: none yet
  Slices slices_;
};

/// DispatchRows::in_slices, asked once.
std::vector<std::vector<ExpertRows>> rows_in_slices(const GateTable& table, std::int64_t tiles_per_slice,
                                                    std::int64_t tile = row_tile);
/// Of one member and one slice.
ExpertRows slice_rows(const GateTable& table, std::int64_t member, Slice slice);

/// DispatchRows::whole.
std::vector<ExpertRows> rows_of_members(const GateTable& table);
/// Of one member: as much work as for all.
ExpertRows all_rows(const GateTable& table, std::int64_t member);

/// Rows of the most loaded member over the mean.
double max_over_mean(std::span<const ExpertRows> members);
double max_over_mean(const GateTable& table);
/// Rows of the most loaded member, of equals the first.
ExpertRows largest(std::span<const ExpertRows> members);

/// The most that a rank can meet in the whole dispatch at any load that k distinct experts per token allow: an expert
/// gets at most the T * EP tokens of the group once each, a rank min(k, its experts) times as many. `sent` is empty.
ExpertRows worst_rows(const BlockContext& context);

/// The most that a rank can meet in one slice at any such load, each field on its own. A source has at most T rows for an
/// expert, k T in all. Some load attains each field wherever a token can do without the experts of a rank (k <= experts of
/// the other ranks; a test tries every table of small groups); elsewhere it is a bound.
ExpertRows worst_slice(const BlockContext& context, std::int64_t tiles_per_slice, std::int64_t tile = row_tile);

}  // namespace spillway
