#include "symmetric/support.hpp"

namespace megamoe::testing_symmetric {
namespace {

struct Boards {
  explicit Boards(int ranks) : regions(static_cast<std::size_t>(ranks)) {
    std::vector<FaultRegion*> all;
    for (FaultRegion& region : regions) all.push_back(&region);
    for (int rank = 0; rank < ranks; ++rank) boards.emplace_back(rank, all);
  }
  std::vector<FaultRegion> regions;
  std::vector<FaultBoard> boards;
};

TEST(FaultBoard, AZeroedRegionHoldsNoFault) {
  Boards group(2);
  EXPECT_FALSE(group.boards[0].raised());
  EXPECT_FALSE(group.boards[1].raised());
}

TEST(FaultBoard, TheRankThatRaisedThrowsItsOwnErrorAndOthersNameIt) {
  Boards group(3);
  group.boards[1].raise(ErrorCode::deadline, "block 7 never came");
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(group.boards[rank].raised()) << rank;
  EXPECT_TRUE(says(error_of([&] { group.boards[1].rethrow(); }), ErrorCode::deadline,
                   {"block 7 never came"}));
  const auto other = error_of([&] { group.boards[2].rethrow(); });
  ASSERT_TRUE(says(other, ErrorCode::aborted, {}));
  EXPECT_STREQ(other->what(), "rank 1 gave up the group: block 7 never came");
}

TEST(FaultBoard, TheFirstFaultWins) {
  Boards group(2);
  group.boards[0].raise(ErrorCode::internal, "first");
  group.boards[1].raise(ErrorCode::deadline, "second");
  EXPECT_TRUE(
      says(error_of([&] { group.boards[1].rethrow(); }), ErrorCode::aborted, {"rank 0", "first"}));
}

TEST(FaultBoard, ThreadsThatRaiseAtOnceAllThrowOneMessage) {
  for (int n = 0; n < 200; ++n) {
    Boards group(4);
    std::vector<std::string> messages(4);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 4; ++rank) {
      threads.emplace_back([&, rank] {
        group.boards[rank].raise(ErrorCode::internal, "cause " + std::to_string(rank));
        messages[rank] = error_of([&] { group.boards[rank].rethrow(); })->what();
      });
    }
    for (std::thread& thread : threads) thread.join();
    const std::string cause = "cause " + std::to_string(group.regions[0].rank);
    for (int rank = 0; rank < 4; ++rank) {
      const std::string wanted =
          rank == group.regions[0].rank
              ? cause
              : "rank " + std::to_string(group.regions[0].rank) + " gave up the group: " + cause;
      ASSERT_EQ(messages[rank], wanted) << rank;
    }
  }
}

TEST(FaultBoard, ALongMessageIsCutBetweenCharacters) {
  Boards group(1);
  std::string text(491, 'x');
  group.boards[0].raise(ErrorCode::internal, text + "\u00e9 and more");
  EXPECT_EQ(error_of([&] { group.boards[0].rethrow(); })->what(), text);
}

TEST(FaultBoard, AMessageThatFitsExactlyIsKeptWhole) {
  Boards group(1);
  const std::string text(sizeof(FaultRegion::message), 'x');
  group.boards[0].raise(ErrorCode::internal, text);
  EXPECT_EQ(error_of([&] { group.boards[0].rethrow(); })->what(), text);
}

TEST(FaultBoard, AnEmptyMessageIsAFaultAllTheSame) {
  Boards group(1);
  group.boards[0].raise(ErrorCode::internal, "");
  EXPECT_TRUE(group.boards[0].raised());
  EXPECT_TRUE(says(error_of([&] { group.boards[0].rethrow(); }), ErrorCode::internal, {"reason"}));
}

TEST(FaultBoard, AWriterThatDiedHalfWayHangsNobody) {
  Boards group(2);
  group.regions[0].claimed = 1;
  group.boards[1].raise(ErrorCode::peer_lost, "rank 0 died");
  EXPECT_TRUE(group.boards[0].raised());
  EXPECT_TRUE(says(error_of([&] { group.boards[1].rethrow(); }), ErrorCode::aborted, {"lost"}));
}

}  // namespace
}  // namespace megamoe::testing_symmetric
