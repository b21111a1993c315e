#pragma once
// The named workloads. Each isolates one variable; only `burst` has topics and therefore a calm imbalance.
//
// preset       hot experts of a hot sequence      hot iterations, sequences    options that act
// balanced     none: rows as even as s*k/E allows -                            seed, exchanges_per_token
// hot_experts  one in each of the reference_ranks every one; hot_share         + reference_*, peak (each hot expert's
//              blocks, at `peak` times its share;                                multiple of its share), hot_share,
//              every block keeps its even share                                  same_block
// hot_rank     one block at `peak` times its      every one; hot_share         + reference_*, peak, hot_share,
//              share, the same in all iterations                                 same_block
// spread       as many experts as a block has,    every one; hot_share         as hot_rank
//              over as many blocks as possible,
//              with the rows of hot_rank's block
// rotating     as hot_rank, the block moves on    every one; hot_share         as hot_rank
//              by one every iteration
// empty        a block, and one more expert in    every one; all               + reference_ranks, same_block
//              every other block, get no rows;
//              the others share evenly
// burst        a block at `peak` times its share, bursts; hot_share            all but trace
//              another one in every burst
// trace        recorded loads (trace.hpp)         -                            trace, seed, exchanges_per_token
//
// The hot sequences are a window of whole micro-batches of reference groups, round(hot_share * micro-batches) of them
// one after the other at a seeded place that differs in every iteration. same_block = false draws the hot experts anew
// for every layer. Experts that are not hot share the other rows evenly, or by topic in `burst`.
#include <cstdint>
#include <span>
#include <string_view>

namespace spillway {

enum class HotSet : unsigned char { none, block, moving_block, one_per_block, spread, empty };
enum class HotWhen : unsigned char { never, always, bursts };

struct Preset {
  std::string_view name;
  HotSet hot = HotSet::none;
  HotWhen when = HotWhen::never;
  bool topics = false;    ///< sequences have topics: `calm` acts
  bool recorded = false;  ///< loads come from a file: `trace` acts
};

std::span<const Preset> presets();

/// InputError for an unknown name, suggesting the nearest.
const Preset& find_preset(std::string_view name);

}  // namespace spillway
