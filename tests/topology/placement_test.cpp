// Where ranks run on hosts that are made up.
#include "topology/placement.hpp"

#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "megamoe/error.hpp"

namespace megamoe {
namespace {

CpuSet range(int first, int count) {
  CpuSet cpus(static_cast<std::size_t>(count));
  std::iota(cpus.begin(), cpus.end(), first);
  return cpus;
}

/// `ranks` ranks without masks of their own on a host of `cpus` processors.
std::vector<RankPlace> unbound(const HostTopology& host, int ranks, int cpus) {
  return place_ranks(host, std::vector<CpuSet>(static_cast<std::size_t>(ranks), range(0, cpus)));
}

std::vector<std::int64_t> shares(const HostTopology& host, const std::vector<CpuSet>& masks) {
  std::vector<std::int64_t> all;
  for (const RankPlace& place : place_ranks(host, masks)) all.push_back(place.share);
  return all;
}

TEST(Topology, OfAMadeUpHostHasItsCoresAndNodes) {
  const HostTopology host = synthetic_topology("numa:2 core:8 pu:2");
  ASSERT_EQ(host.cores.size(), 16u);
  EXPECT_EQ(host.cores[0].cpus, (CpuSet{0, 1}));
  EXPECT_EQ(host.cores[15].cpus, (CpuSet{30, 31}));
  EXPECT_EQ(host.cores[7].node, 0);
  EXPECT_EQ(host.cores[8].node, 1);
  EXPECT_EQ(host.nodes(), (std::vector<int>{0, 1}));
  EXPECT_EQ(host.describe(),
            "2 NUMA nodes: node 0 with 8 cores (CPUs 0-15), node 1 with 8 cores (CPUs 16-31)");
  EXPECT_EQ(HostTopology{}.describe(), "not told: taken for one node");
  EXPECT_THROW(synthetic_topology("a host like any other"), Error);
}

TEST(Topology, OfThisHostHasTheProcessorsThatThisTestRunsOn) {
  EXPECT_FALSE(host_topology().cores.empty());
  EXPECT_FALSE(host_topology().nodes().empty());
}

TEST(Placement, RanksPerNodeStayOnIt) {
  const HostTopology host = synthetic_topology("numa:2 core:8 pu:2");
  const auto places = unbound(host, 4, 32);
  for (int rank = 0; rank < 4; ++rank) {
    const RankPlace& place = places[static_cast<std::size_t>(rank)];
    EXPECT_EQ(place.cpus, range(rank * 8, 8)) << rank;
    EXPECT_EQ(place.nodes, (std::vector<int>{rank / 2})) << rank;
    EXPECT_EQ(place.share, 8) << rank;
    EXPECT_TRUE(place.narrowed) << rank;
  }
  EXPECT_EQ(places[2].describe(), "CPUs 16-23 on node 1");
}

TEST(Placement, NeighboursComeFromTheTopologyNotFromTheNumbers) {
  // As many systems count: first one processor of every core, the nodes in turn, then the second.
  const HostTopology host = synthetic_topology("numa:2 core:2 pu:2(indexes=0,4,2,6,1,5,3,7)");
  const auto places = unbound(host, 2, 8);
  EXPECT_EQ(places[0].cpus, (CpuSet{0, 4, 2, 6}));
  EXPECT_EQ(places[1].cpus, (CpuSet{1, 5, 3, 7}));
  EXPECT_EQ(places[0].nodes, (std::vector<int>{0}));
  EXPECT_EQ(places[0].describe(), "CPUs 0, 2, 4, 6 on node 0");
  // Ranks of one core each.
  const auto cores = unbound(host, 4, 8);
  EXPECT_EQ(cores[1].cpus, (CpuSet{2, 6}));
  EXPECT_EQ(cores[2].cpus, (CpuSet{1, 5}));
}

TEST(Placement, PartsDifferByOneProcessorAndMayReachOverTwoNodes) {
  const HostTopology host = synthetic_topology("numa:2 core:4 pu:1");
  const auto places = unbound(host, 3, 8);
  EXPECT_EQ(places[0].cpus, range(0, 2));
  EXPECT_EQ(places[1].cpus, range(2, 3));
  EXPECT_EQ(places[2].cpus, range(5, 3));
  EXPECT_EQ(places[1].nodes, (std::vector<int>{0, 1}));
  for (const RankPlace& place : places) EXPECT_EQ(place.share, 2);
}

TEST(Placement, AMaskThatIsARanksOwnIsAllIts) {
  const HostTopology host = synthetic_topology("numa:2 core:4 pu:1");
  const auto places = place_ranks(host, std::vector<CpuSet>{range(4, 4), range(0, 3)});
  EXPECT_EQ(places[0].cpus, range(4, 4));
  EXPECT_EQ(places[0].share, 4);
  EXPECT_EQ(places[1].cpus, range(0, 3));
  EXPECT_FALSE(places[0].narrowed);
  EXPECT_FALSE(places[1].narrowed);
  // One rank alone has the host.
  const auto alone = unbound(host, 1, 8);
  EXPECT_EQ(alone[0].cpus, range(0, 8));
  EXPECT_EQ(alone[0].nodes, (std::vector<int>{0, 1}));
  EXPECT_FALSE(alone[0].narrowed);
}

TEST(Placement, RanksOfOneMaskPartItBesideOthers) {
  // Two to a socket, as a launcher binds them.
  const HostTopology host = synthetic_topology("numa:2 core:4 pu:1");
  const auto places =
      place_ranks(host, std::vector<CpuSet>{range(0, 4), range(4, 4), range(0, 4), range(4, 4)});
  EXPECT_EQ(places[0].cpus, range(0, 2));
  EXPECT_EQ(places[1].cpus, range(4, 2));
  EXPECT_EQ(places[2].cpus, range(2, 2));
  EXPECT_EQ(places[3].cpus, range(6, 2));
}

TEST(Placement, MasksThatOverlapInPartAndMoreRanksThanProcessorsKeepTheirMasks) {
  const HostTopology host = synthetic_topology("numa:2 core:2 pu:1");
  const auto overlap = place_ranks(host, std::vector<CpuSet>{range(0, 3), range(2, 2)});
  EXPECT_EQ(overlap[0].cpus, range(0, 3));
  EXPECT_EQ(overlap[1].cpus, range(2, 2));
  EXPECT_FALSE(overlap[0].narrowed);
  EXPECT_FALSE(overlap[1].narrowed);
  for (const RankPlace& place : unbound(host, 5, 4)) {
    EXPECT_EQ(place.cpus, range(0, 4));
    EXPECT_EQ(place.share, 1);
    EXPECT_FALSE(place.narrowed);
  }
}

TEST(Placement, ProcessorsThatTheTopologyDoesNotKnowHaveNoNode) {
  const auto places = unbound(synthetic_topology("core:2 pu:1"), 2, 4);
  EXPECT_EQ(places[0].nodes, (std::vector<int>{0}));
  EXPECT_EQ(places[1].cpus, range(2, 2));
  EXPECT_TRUE(places[1].nodes.empty());
  const auto untold = place_ranks({}, std::vector<CpuSet>{{}, {0, 1}});
  EXPECT_TRUE(untold[0].cpus.empty());
  EXPECT_FALSE(untold[0].narrowed);
  EXPECT_EQ(untold[0].describe(), "CPUs as the system gives them");
}

TEST(Placement, SharesCountProcessorsOfSeveralRanksInParts) {
  const HostTopology host = synthetic_topology("core:8 pu:1");
  using Shares = std::vector<std::int64_t>;
  EXPECT_EQ(shares(host, {{0, 1, 2, 3}, {4, 5, 6, 7}}), (Shares{4, 4}));
  EXPECT_EQ(shares(host, {{0, 1, 2, 3}, {0, 1, 2, 3}}), (Shares{2, 2}));
  EXPECT_EQ(shares(host, {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}), (Shares{1, 1, 1}));
  EXPECT_EQ(shares(host, {{0, 1, 2, 3}, {0, 1, 2, 3}, {4, 5, 6, 7}, {4, 5, 6, 7}}),
            (Shares{2, 2, 2, 2}));
  EXPECT_EQ(shares(host, {{0, 1, 2, 3}, {3}}), (Shares{3, 1}));
  EXPECT_EQ(shares(host, {{0}, {0}, {0}}), (Shares{1, 1, 1}));
  EXPECT_EQ(shares(host, {{}, {0, 1}}), (Shares{1, 2})) << "a rank whose system does not say";
}

TEST(Placement, ThreadsAreBoundOnSeveralNodesOrWhenAskedFor) {
  const HostTopology one = synthetic_topology("core:4 pu:1");
  const HostTopology two = synthetic_topology("numa:2 core:2 pu:1");
  const RankPlace on_one = unbound(one, 2, 4)[1];
  const RankPlace on_two = unbound(two, 2, 4)[1];
  EXPECT_EQ(bind_rank(one, on_one, {}).describe(), "threads keep their mask");
  EXPECT_EQ(bind_rank(one, on_one, true).threads, range(2, 2));
  EXPECT_TRUE(bind_rank(one, on_one, true).memory.empty());
  EXPECT_EQ(bind_rank(two, on_two, {}).threads, range(2, 2));
  EXPECT_EQ(bind_rank(two, on_two, {}).describe(), "threads bound, memory on node 1");
  // Threads that may go anywhere have no memory of their own.
  EXPECT_TRUE(bind_rank(two, on_two, false).threads.empty());
  EXPECT_TRUE(bind_rank(two, on_two, false).memory.empty());
  // A launcher's binding is enough; a rank of all nodes spreads its memory.
  const RankPlace launched = place_ranks(two, std::vector<CpuSet>{range(0, 2), range(2, 2)})[0];
  EXPECT_EQ(bind_rank(two, launched, {}).describe(), "threads keep their mask, memory on node 0");
  EXPECT_EQ(bind_rank(two, unbound(two, 1, 4)[0], {}).describe(),
            "threads keep their mask, memory in turn on nodes 0, 1");
}

}  // namespace
}  // namespace megamoe
