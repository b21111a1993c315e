#include "grid/grid.hpp"

namespace spillway {

void validate(const GridOptions& o, int world) {
  const auto positive = [](const char* name, int value) {
    require_input(value >= 1, "{} = {}: must be at least 1", name, value);
  };
  positive("pipeline_parallel", o.pipeline_parallel);
  positive("data_parallel", o.data_parallel);
  positive("tensor_parallel", o.tensor_parallel);
  positive("expert_parallel", o.expert_parallel);
  const long long plane = 1LL * o.data_parallel * o.tensor_parallel;
  const long long ranks = plane * o.pipeline_parallel;
  require_input(ranks <= (1LL << 30), "{} ranks asked for: more than 2^30", ranks);
  if (plane % o.expert_parallel != 0) {
    long long below = o.expert_parallel, above = o.expert_parallel;
    while (below > 1 && plane % below != 0) --below;
    while (above < plane && plane % above != 0) ++above;
    if (above > plane) above = plane;
    throw InputError(fmt::format(
        "expert_parallel = {} does not divide the {} ranks of a stage (data_parallel {} x tensor_parallel {}); "
        "nearest that do: {}{}",
        o.expert_parallel, plane, o.data_parallel, o.tensor_parallel, below,
        above != below && plane % above == 0 ? fmt::format(", {}", above) : ""));
  }
  require_input(
      world == 0 || world == ranks,
      "the case needs {} ranks = pipeline_parallel {} x data_parallel {} x tensor_parallel {}, but the launcher "
      "started {}; start {} ranks or change the layout",
      ranks, o.pipeline_parallel, o.data_parallel, o.tensor_parallel, world, ranks);
}

}  // namespace spillway
