#include "run/parameter_store.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/random.hpp"
#include "device/ops/initialize.hpp"

namespace spillway {
namespace {

float* allocate(device::Arena& arena, Category category, std::int64_t elements) {
  void* block = arena.allocate(category, Bytes(elements * 4));
  require_input(
      block != nullptr,
      "memory.cap = {:.2f} MiB is too small for parameters, gradients and optimizer state: {} of {:.2f} MiB did "
      "not fit beside {:.2f} MiB",
      mebibytes(arena.cap()), category_names[static_cast<std::size_t>(category)], mebibytes(Bytes(elements * 4)),
      mebibytes(arena.ledger().live()));
  return static_cast<float*>(block);
}

std::vector<float> copy_out(const float* data, std::int64_t elements) { return {data, data + elements}; }

}  // namespace

ParameterStore::ParameterStore(device::Arena& arena, std::span<const StageBlock> blocks, const Grid& grid,
                               const RankElements& elements)
    : blocks_(blocks.begin(), blocks.end()), grid_(grid) {
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
    std::array<std::int64_t, parameter_group_count> offset{};
    for (const ParameterShape& p : parameters(blocks[b].kind, blocks[b].context)) {
      std::int64_t& at = offset[static_cast<int>(p.group)];
      places_[{b, p.id}] = {p, elements[static_cast<int>(p.group)].bucket_of(b).first + at};
      at += p.size();
    }
  }
  for (int g = 0; g < parameter_group_count; ++g) {
    GroupBuffers& group = groups_[g];
    group.elements = elements[g];
    group.values = allocate(arena, Category::parameters, group.elements.padded());
    group.gradients = allocate(arena, Category::gradients, group.elements.padded());
    group.first_moment = allocate(arena, Category::optimizer, group.elements.shard());
    group.second_moment = allocate(arena, Category::optimizer, group.elements.shard());
    const Bytes buffer = reduction_buffer(group.elements);
    if (group.elements.overlapped && buffer.value > 0)
      group.received = allocate(arena, Category::communication, buffer.value / 4);
  }
}

device::Matrix<float> ParameterStore::view(int block, Parameter parameter, float* GroupBuffers::*buffer) const {
  const auto found = places_.find({block, parameter});
  ensure(found != places_.end(), "block {} has no {}", block, name(parameter));
  const Place& place = found->second;
  return {groups_[static_cast<int>(place.shape.group)].*buffer + place.offset, place.shape.rows, place.shape.cols};
}

std::int64_t ParameterStore::whole_index(const ParameterShape& shape, const Grid& grid, const Coordinates& here,
                                         std::int64_t i) {
  if (shape.group == ParameterGroup::expert) return spillway::whole_index(shape, here.expert, grid.expert(), i);
  return spillway::whole_index(shape, here.tensor, grid.tensor(), i);
}

void ParameterStore::initialize(std::uint64_t seed, const Coordinates& here) {
  for (const GroupBuffers& group : groups_) {
    std::fill_n(group.values, group.elements.padded(), 0.0f);
    std::fill_n(group.gradients, group.elements.padded(), 0.0f);
    std::fill_n(group.first_moment, group.elements.shard(), 0.0f);
    std::fill_n(group.second_moment, group.elements.shard(), 0.0f);
  }
  for (const auto& [key, place] : places_) {
    const auto [block, parameter] = key;
    const device::Matrix<float> values = value(block, parameter);
    if (place.shape.standard_deviation == 0) {
      std::fill_n(values.data, values.size(), 1.0f);
      continue;
    }
    const auto layer = static_cast<std::uint64_t>(blocks_[block].layer) + 1;
    const std::uint64_t random_key = mix(seed, static_cast<std::uint64_t>(parameter), layer);
    const bool in_bands = place.shape.division == Division::columns && grid_.tensor() > 1;
    const std::vector<std::int64_t> all{values.size()}, &runs = in_bands ? place.shape.bands : all;
    for (std::int64_t at = 0; at < values.size();)
      for (const std::int64_t run : runs) {
        const auto first = static_cast<std::uint64_t>(whole_index(place.shape, grid_, here, at));
        device::ops::initialize_normal({values.data + at, 1, run}, random_key, place.shape.standard_deviation, first);
        at += run;
      }
  }
}

void ParameterStore::save(Snapshot& snapshot) const {
  for (int g = 0; g < parameter_group_count; ++g) {
    const GroupBuffers& group = groups_[g];
    snapshot.groups[g] = {copy_out(group.values, group.elements.padded()),
                          copy_out(group.first_moment, group.elements.shard()),
                          copy_out(group.second_moment, group.elements.shard())};
  }
}

void ParameterStore::restore(const Snapshot& snapshot) {
  for (int g = 0; g < parameter_group_count; ++g) {
    const GroupBuffers& group = groups_[g];
    std::copy(snapshot.groups[g].values.begin(), snapshot.groups[g].values.end(), group.values);
    std::copy(snapshot.groups[g].first_moment.begin(), snapshot.groups[g].first_moment.end(), group.first_moment);
    std::copy(snapshot.groups[g].second_moment.begin(), snapshot.groups[g].second_moment.end(), group.second_moment);
  }
}

}  // namespace spillway
