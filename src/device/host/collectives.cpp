#include "device/collectives.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "device/host/row_layout.hpp"

namespace spillway::device {
namespace {

/// A row as one MPI element: counts stay small where bytes do not.
class RowType {
 public:
  explicit RowType(std::int64_t bytes) {
    ensure(bytes <= std::numeric_limits<int>::max(), "a row of {} bytes is too long for one MPI element", bytes);
    MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &type_);
    MPI_Type_commit(&type_);
  }
  ~RowType() { MPI_Type_free(&type_); }
  RowType(const RowType&) = delete;
  RowType& operator=(const RowType&) = delete;
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// Start and end of a collective on the virtual clock: it starts when the last member can, lasts as long as the bytes
/// that every member received say, and occupies every member's network lane to its end.
Interval agree_on_time(Clock& clock, const Group& group, Seconds start, Bytes received) {
  if (!clock.is_virtual()) return clock.network_end(start, start);
  struct Entry {
    double start;
    std::int64_t received;
  } mine{start.value, received.value};
  std::vector<Entry> all(group.size());
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, group.comm());
  std::vector<Bytes> bytes;
  double latest = start.value;
  for (const Entry& e : all) {
    latest = std::max(latest, e.start);
    bytes.emplace_back(e.received);
  }
  const Seconds begin(latest);
  return clock.network_end(begin, begin + clock.model().all_to_all(bytes, group.world_ranks()));
}

constexpr int header_tag(int tag) { return 2 * tag; }
constexpr int payload_tag(int tag) { return 2 * tag + 1; }

}  // namespace

Interval all_to_all(Clock& clock, const Group& group, const RowExchange& x, Seconds ready) {
  const Seconds start = clock.network_start(ready);
  const RowLayout sent(x.sent_rows), received(x.received_rows);
  ensure(sent.total == x.sent.rows && received.total == x.received.rows,
         "all-to-all: counts say {} rows out and {} in, the buffers hold {} and {}", sent.total, received.total,
         x.sent.rows, x.received.rows);
  const RowType row(x.received.cols * static_cast<std::int64_t>(sizeof(float)));
  MPI_Alltoallv(x.sent.data, sent.counts.data(), sent.displacements.data(), row.get(), x.received.data,
                received.counts.data(), received.displacements.data(), row.get(), group.comm());
  Bytes bytes = x.received.bytes();
  if (x.weighted) {
    MPI_Alltoallv(x.sent_weight, sent.counts.data(), sent.displacements.data(), MPI_FLOAT, x.received_weight,
                  received.counts.data(), received.displacements.data(), MPI_FLOAT, group.comm());
    bytes += Bytes(received.total * static_cast<std::int64_t>(sizeof(float)));
  }
  return agree_on_time(clock, group, start, bytes);
}

Interval all_gather_rows(Clock& clock, const Group& group, Matrix<const float> mine, Matrix<float> all, Seconds ready) {
  const Seconds start = clock.network_start(ready);
  ensure(mine.cols == all.cols && mine.rows * group.size() == all.rows,
         "all-gather of rows: [{}, {}] of {} members into [{}, {}]", mine.rows, mine.cols, group.size(), all.rows,
         all.cols);
  const RowType row(mine.cols * static_cast<std::int64_t>(sizeof(float)));
  const int count = to_count(mine.rows);
  const bool in_place = mine.data == all.row(group.rank() * mine.rows);
  MPI_Allgather(in_place ? MPI_IN_PLACE : mine.data, count, row.get(), all.data, count, row.get(), group.comm());
  return agree_on_time(clock, group, start, all.bytes());
}

Interval exchange_rows(Clock& clock, const Group& group, Matrix<const float> sent, Matrix<float> received,
                       Seconds ready) {
  const Seconds start = clock.network_start(ready);
  ensure(sent.rows == received.rows && sent.cols == received.cols && sent.rows % group.size() == 0,
         "exchange of rows: [{}, {}] to and [{}, {}] from {} members", sent.rows, sent.cols, received.rows,
         received.cols, group.size());
  const RowType row(sent.cols * static_cast<std::int64_t>(sizeof(float)));
  const int count = to_count(sent.rows / group.size());
  MPI_Alltoall(sent.data, count, row.get(), received.data, count, row.get(), group.comm());
  return agree_on_time(clock, group, start, received.bytes());
}

Interval all_gather(Clock& clock, const Group& group, std::span<const std::int64_t> mine, std::span<std::int64_t> all,
                    Seconds ready) {
  const Seconds start = clock.network_start(ready);
  MPI_Allgather(mine.data(), to_count(static_cast<std::int64_t>(mine.size())), MPI_INT64_T, all.data(),
                to_count(static_cast<std::int64_t>(mine.size())), MPI_INT64_T, group.comm());
  return agree_on_time(clock, group, start, Bytes(static_cast<std::int64_t>(all.size_bytes())));
}

Interval exchange_pieces(Clock& clock, const Group& group, std::span<const float* const> pieces, std::int64_t elements,
                         float* received, Seconds ready) {
  const Seconds start = clock.network_start(ready);
  std::vector<MPI_Request> requests;
  for (int i = 0; i < group.size(); ++i) {
    requests.emplace_back();
    MPI_Irecv(received + i * elements, to_count(elements), MPI_FLOAT, i, 0, group.comm(), &requests.back());
  }
  for (int i = 0; i < group.size(); ++i) {
    requests.emplace_back();
    MPI_Isend(pieces[i], to_count(elements), MPI_FLOAT, i, 0, group.comm(), &requests.back());
  }
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  return agree_on_time(clock, group, start, Bytes(group.size() * elements * 4));
}

Interval gather_pieces(Clock& clock, const Group& group, std::span<float* const> pieces, std::int64_t elements,
                       Seconds ready) {
  const Seconds start = clock.network_start(ready);
  std::vector<MPI_Request> requests;
  for (int i = 0; i < group.size(); ++i) {
    if (i == group.rank()) continue;
    requests.emplace_back();
    MPI_Irecv(pieces[i], to_count(elements), MPI_FLOAT, i, 0, group.comm(), &requests.back());
    requests.emplace_back();
    MPI_Isend(pieces[group.rank()], to_count(elements), MPI_FLOAT, i, 0, group.comm(), &requests.back());
  }
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  return agree_on_time(clock, group, start, Bytes(group.size() * elements * 4));
}

bool Transfer::done() const {
  int flag = 0;
  MPI_Testall(2, state_->requests, &flag, MPI_STATUSES_IGNORE);
  return flag != 0;
}

void Transfer::wait() const { MPI_Waitall(2, state_->requests, MPI_STATUSES_IGNORE); }

Transfer send(Clock& clock, const Group& group, const PipelineMessage& m, Seconds ready, Interval& interval) {
  Transfer transfer;
  MessageHeader& header = transfer.state_->header;
  MPI_Request* requests = transfer.state_->requests;
  const Seconds start = clock.network_start(ready);
  header.draining = m.draining ? 1 : 0;
  if (clock.is_virtual()) {
    const auto& ranks = group.world_ranks();
    const auto cost = clock.model().message(m.matrix.bytes(), ranks[group.rank()], ranks[m.to]);
    interval = clock.network_end(start, start + cost.occupied);
    header.arrival = (interval.end + cost.latency).value;
  }
  MPI_Isend(&header, sizeof header, MPI_BYTE, m.to, header_tag(m.tag), group.comm(), &requests[0]);
  const RowType row(m.matrix.cols * static_cast<std::int64_t>(sizeof(float)));
  MPI_Isend(m.matrix.data, to_count(m.matrix.rows), row.get(), m.to, payload_tag(m.tag), group.comm(), &requests[1]);
  if (!clock.is_virtual()) interval = clock.network_end(start, start);
  return transfer;
}

MessageHeader receive(Clock& clock, const Group& group, int from, int tag, Matrix<float> matrix) {
  MessageHeader header;
  MPI_Recv(&header, sizeof header, MPI_BYTE, from, header_tag(tag), group.comm(), MPI_STATUS_IGNORE);
  const RowType row(matrix.cols * static_cast<std::int64_t>(sizeof(float)));
  MPI_Recv(matrix.data, to_count(matrix.rows), row.get(), from, payload_tag(tag), group.comm(), MPI_STATUS_IGNORE);
  if (!clock.is_virtual()) header.arrival = clock.now().value;
  return header;
}

}  // namespace spillway::device
