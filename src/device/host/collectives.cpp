#include "device/collectives.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.hpp"
#include "device/host/network_lane.hpp"
#include "device/host/row_layout.hpp"

namespace spillway::device {
namespace {

/// A row as one MPI element: counts stay small where bytes do not. It is made by the first get() and lives as long as the
/// messages that use it.
class RowType {
 public:
  static std::shared_ptr<RowType> of(std::int64_t columns) { return std::make_shared<RowType>(columns); }
  explicit RowType(std::int64_t columns) : bytes_(columns * static_cast<std::int64_t>(sizeof(float))) {
    ensure(bytes_ <= std::numeric_limits<int>::max(), "a row of {} bytes is too long for one MPI element", bytes_);
  }
  ~RowType() {
    if (type_ != MPI_DATATYPE_NULL) MPI_Type_free(&type_);
  }
  RowType(const RowType&) = delete;
  RowType& operator=(const RowType&) = delete;
  MPI_Datatype get() {
    if (type_ == MPI_DATATYPE_NULL) {
      MPI_Type_contiguous(static_cast<int>(bytes_), MPI_BYTE, &type_);
      MPI_Type_commit(&type_);
    }
    return type_;
  }

 private:
  std::int64_t bytes_;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// Starts a collective's messages. On the virtual clock it begins when the last member can, lasts as long as the bytes that
/// every member receives say, and occupies every member's network lane to its end.
struct Collective {
  Network& network;
  const Group& group;
  Seconds ready;
  Bytes received;

  Event start(std::function<std::vector<MPI_Request>()> messages) const {
    Clock& clock = network.clock();
    if (!clock.is_virtual()) return network.lane().issue({Network::Lane::Busy::until_done, std::move(messages)});
    struct Entry {
      double start;
      std::int64_t received;
    } mine{clock.network_start(ready).value, received.value};
    network.lane().issue({Network::Lane::Busy::until_done, std::move(messages)}).wait();
    std::vector<Entry> all(group.size());
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, group.comm());
    std::vector<Bytes> bytes;
    double latest = mine.start;
    for (const Entry& e : all) {
      latest = std::max(latest, e.start);
      bytes.emplace_back(e.received);
    }
    const Seconds begin(latest);
    return Event::at(clock.network_end(begin, begin + clock.model().all_to_all(bytes, group.world_ranks())));
  }
};

struct RowLayouts {
  RowLayout sent, received;
};

/// Elements of `floats` floats each, to and from the members of a communicator.
struct Elements {
  const float* sent;
  std::int64_t floats;
  float* received;
  MPI_Datatype type;
  int tag;
  MPI_Comm comm;
};

/// All-to-all without MPI_Ialltoallv: Open MPI's (4.1) counts no call of a member that neither sends nor receives, so that
/// the members' next collectives miss each other. Messages of a pair match in the order of issue.
void exchange_nonempty(const Elements& e, const RowLayouts& rows, std::vector<MPI_Request>& requests) {
  const int members = static_cast<int>(rows.sent.counts.size());
  for (int i = 0; i < members; ++i)
    if (const int n = rows.received.counts[static_cast<std::size_t>(i)]; n > 0)
      MPI_Irecv(e.received + rows.received.displacements[static_cast<std::size_t>(i)] * e.floats, n, e.type, i, e.tag,
                e.comm, &requests.emplace_back());
  for (int i = 0; i < members; ++i)
    if (const int n = rows.sent.counts[static_cast<std::size_t>(i)]; n > 0)
      MPI_Isend(e.sent + rows.sent.displacements[static_cast<std::size_t>(i)] * e.floats, n, e.type, i, e.tag, e.comm,
                &requests.emplace_back());
}

constexpr int header_tag(int tag) { return 2 * tag; }
constexpr int payload_tag(int tag) { return 2 * tag + 1; }

}  // namespace

Event all_to_all(Network& network, const Group& group, const RowExchange& x, Seconds ready) {
  const auto rows = std::make_shared<const RowLayouts>(RowLayouts{RowLayout(x.sent_rows), RowLayout(x.received_rows)});
  ensure(rows->sent.total == x.sent.rows && rows->received.total == x.received.rows,
         "all-to-all: counts say {} rows out and {} in, the buffers hold {} and {}", rows->sent.total,
         rows->received.total, x.sent.rows, x.received.rows);
  const Bytes weights(x.weighted ? rows->received.total * static_cast<std::int64_t>(sizeof(float)) : 0);
  const Collective collective{network, group, ready, x.received.bytes() + weights};
  return collective.start([x, rows, row = RowType::of(x.received.cols), comm = group.comm()] {
    std::vector<MPI_Request> requests;
    exchange_nonempty({x.sent.data, x.sent.cols, x.received.data, row->get(), 0, comm}, *rows, requests);
    if (x.weighted) exchange_nonempty({x.sent_weight, 1, x.received_weight, MPI_FLOAT, 1, comm}, *rows, requests);
    return requests;
  });
}

Event all_gather_rows(Network& network, const Group& group, Matrix<const float> mine, Matrix<float> all,
                      Seconds ready) {
  ensure(mine.cols == all.cols && mine.rows * group.size() == all.rows,
         "all-gather of rows: [{}, {}] of {} members into [{}, {}]", mine.rows, mine.cols, group.size(), all.rows,
         all.cols);
  const bool in_place = mine.data == all.row(group.rank() * mine.rows);
  const Collective collective{network, group, ready, all.bytes()};
  return collective.start(
      [mine, all, in_place, row = RowType::of(mine.cols), count = to_count(mine.rows), comm = group.comm()] {
        std::vector<MPI_Request> request(1);
        MPI_Iallgather(in_place ? MPI_IN_PLACE : mine.data, count, row->get(), all.data, count, row->get(), comm,
                       request.data());
        return request;
      });
}

Event exchange_rows(Network& network, const Group& group, Matrix<const float> sent, Matrix<float> received,
                    Seconds ready) {
  ensure(sent.rows == received.rows && sent.cols == received.cols && sent.rows % group.size() == 0,
         "exchange of rows: [{}, {}] to and [{}, {}] from {} members", sent.rows, sent.cols, received.rows,
         received.cols, group.size());
  const Collective collective{network, group, ready, received.bytes()};
  return collective.start(
      [sent, received, row = RowType::of(sent.cols), count = to_count(sent.rows / group.size()), comm = group.comm()] {
        std::vector<MPI_Request> request(1);
        MPI_Ialltoall(sent.data, count, row->get(), received.data, count, row->get(), comm, request.data());
        return request;
      });
}

Event all_gather(Network& network, const Group& group, std::span<const std::int64_t> mine, std::span<std::int64_t> all,
                 Seconds ready) {
  const Collective collective{network, group, ready, Bytes(static_cast<std::int64_t>(all.size_bytes()))};
  return collective.start([mine, all, count = to_count(std::ssize(mine)), comm = group.comm()] {
    std::vector<MPI_Request> request(1);
    MPI_Iallgather(mine.data(), count, MPI_INT64_T, all.data(), count, MPI_INT64_T, comm, request.data());
    return request;
  });
}

Event exchange_pieces(Network& network, const Group& group, std::span<const float* const> pieces, std::int64_t elements,
                      float* received, Seconds ready) {
  const Collective collective{network, group, ready, Bytes(group.size() * elements * 4)};
  return collective.start([pieces = std::vector(pieces.begin(), pieces.end()), elements, count = to_count(elements),
                           received, comm = group.comm()] {
    const int members = static_cast<int>(pieces.size());
    std::vector<MPI_Request> requests(2 * pieces.size());
    for (int i = 0; i < members; ++i) {
      MPI_Irecv(received + i * elements, count, MPI_FLOAT, i, 0, comm, &requests[i]);
      MPI_Isend(pieces[i], count, MPI_FLOAT, i, 0, comm, &requests[members + i]);
    }
    return requests;
  });
}

Event gather_pieces(Network& network, const Group& group, std::span<float* const> pieces, std::int64_t elements,
                    Seconds ready) {
  const Collective collective{network, group, ready, Bytes(group.size() * elements * 4)};
  return collective.start([pieces = std::vector(pieces.begin(), pieces.end()), count = to_count(elements),
                           me = group.rank(), comm = group.comm()] {
    std::vector<MPI_Request> requests;
    for (int i = 0; i < static_cast<int>(pieces.size()); ++i) {
      if (i == me) continue;
      MPI_Irecv(pieces[i], count, MPI_FLOAT, i, 0, comm, &requests.emplace_back());
      MPI_Isend(pieces[me], count, MPI_FLOAT, i, 0, comm, &requests.emplace_back());
    }
    return requests;
  });
}

bool all_say(Network& network, const Group& group, std::uint64_t what) {
  std::array<std::uint64_t, 2> least{what, ~what};
  const Event event = network.lane().issue({Network::Lane::Busy::never, [&least, comm = group.comm()] {
                                              std::vector<MPI_Request> request(1);
                                              MPI_Iallreduce(MPI_IN_PLACE, least.data(), 2, MPI_UINT64_T, MPI_MIN, comm,
                                                             request.data());
                                              return request;
                                            }});
  event.wait();
  return least[0] == what && ~least[1] == what;
}

Event send(Network& network, const Group& group, const PipelineMessage& m, Seconds ready) {
  Clock& clock = network.clock();
  const auto header = std::make_shared<MessageHeader>();
  header->draining = m.draining ? 1 : 0;
  Interval ran{};
  if (clock.is_virtual()) {
    const auto& ranks = group.world_ranks();
    const auto cost = clock.model().message(m.matrix.bytes(), ranks[group.rank()], ranks[m.to]);
    const Seconds start = clock.network_start(ready);
    ran = clock.network_end(start, start + cost.occupied);
    header->arrival = (ran.end + cost.latency).value;
  }
  return network.lane().issue(
      {Network::Lane::Busy::to_start,
       [m, header, row = RowType::of(m.matrix.cols), count = to_count(m.matrix.rows), comm = group.comm()] {
         std::vector<MPI_Request> requests(2);
         MPI_Isend(header.get(), sizeof *header, MPI_BYTE, m.to, header_tag(m.tag), comm, &requests[0]);
         MPI_Isend(m.matrix.data, count, row->get(), m.to, payload_tag(m.tag), comm, &requests[1]);
         return requests;
       }},
      ran);
}

Arrival receive(Network& network, const Group& group, int from, int tag, Matrix<float> matrix) {
  const auto header = std::make_shared<MessageHeader>();
  const Event event = network.lane().issue(
      {Network::Lane::Busy::never,
       [header, from, tag, matrix, row = RowType::of(matrix.cols), count = to_count(matrix.rows), comm = group.comm()] {
         std::vector<MPI_Request> requests(2);
         MPI_Irecv(header.get(), sizeof *header, MPI_BYTE, from, header_tag(tag), comm, &requests[0]);
         MPI_Irecv(matrix.data, count, row->get(), from, payload_tag(tag), comm, &requests[1]);
         return requests;
       }});
  if (!network.clock().is_virtual()) return {event, header};
  event.wait();
  const Seconds arrival(header->arrival);
  return {Event::at({arrival, arrival}), header};
}

}  // namespace spillway::device
