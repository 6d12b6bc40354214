#include "symmetric/rendezvous.hpp"

#include <sys/socket.h>

#include "symmetric/processes.hpp"

namespace megamoe::testing_symmetric {
namespace {

constexpr uid_t kNobody = 65534;

std::string join_as(const ProcessGroupOptions& options) {
  join_process_group(options);
  return "joined";
}

/// A connection to rank 0 of a group that forms in another process.
Channel connect_when_there(const std::string& rendezvous) {
  while (true) {
    if (auto channel = connect_to(socket_name(rendezvous))) return std::move(*channel);
    std::this_thread::yield();
  }
}

void send_raw(const Channel& channel, const std::string& bytes) {
  ASSERT_EQ(send(channel.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

void say_hello(const Channel& channel, const Hello& hello) {
  channel.send(MessageKind::hello, std::as_bytes(std::span(&hello, 1)), {}, Deadline(5s));
}

Message hear(Channel& channel) {
  Message message;
  while (channel.receive(message) == Channel::State::blocked) std::this_thread::yield();
  return message;
}

TEST(Rendezvous, ALateRankWithinTheDeadlineIsWelcome) {
  for (const int late : {0, 1}) {
    const std::string rendezvous = fresh_rendezvous();
    std::vector<Child> children;
    for (int rank = 0; rank < 3; ++rank) {
      children.emplace_back([&] {
        if (rank == late) std::this_thread::sleep_for(300ms);
        return join_as(member(rank, 3, rendezvous));
      });
    }
    for (Child& child : children) EXPECT_EQ(child.reap().text, "joined");
  }
}

TEST(Rendezvous, RanksThatDoNotJoinAreNamedAtTheDeadlineOnEveryRank) {
  const std::string rendezvous = fresh_rendezvous();
  Child rank_0([&] { return join_as(member(0, 4, rendezvous, 300ms)); });
  Child rank_2([&] { return join_as(member(2, 4, rendezvous, 20s)); });
  for (Child* child : {&rank_0, &rank_2}) {
    EXPECT_TRUE(says(child->reap().error, ErrorCode::deadline,
                     {"ranks 1 and 3 did not join", rendezvous, "0.3 s", "raise the deadline"}));
  }
}

TEST(Rendezvous, ARank0ThatNeverComesIsNamedAtTheDeadline) {
  EXPECT_TRUE(says(error_of([] { join_as(member(1, 2, fresh_rendezvous(), 100ms)); }),
                   ErrorCode::deadline, {"rank 1", "rank 0", "0.1 s"}));
}

TEST(Rendezvous, ARankThatDiesWhileTheGroupFormsIsNamedOnEveryRank) {
  const std::string rendezvous = fresh_rendezvous();
  Child rank_0([&] { return join_as(member(0, 4, rendezvous, 0s)); });
  Child rank_1([&] { return join_as(member(1, 4, rendezvous, 0s)); });
  {
    Channel rank_2 = connect_when_there(rendezvous);
    say_hello(rank_2, {kProtocolVersion, 2, 4});
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_TRUE(says(rank_0.reap().error, ErrorCode::peer_lost, {"rank 2", "process"}));
  // Rank 1 may have come after the group failed: then it still looks for rank 0.
  kill(rank_1.process(), SIGKILL);
}

TEST(Rendezvous, ForeignBytesDoNotDisturbTheGroup) {
  const std::string rendezvous = fresh_rendezvous();
  Child rank_0([&] { return join_as(member(0, 2, rendezvous)); });
  std::vector<Channel> strangers;
  for (int n = 0; n < 6; ++n) strangers.push_back(connect_when_there(rendezvous));
  send_raw(strangers[0], "GET / HTTP/1.1\r\n\r\n");
  send_raw(strangers[1], std::string(100000, '\xff'));
  send_raw(strangers[2], "");
  send_raw(strangers[3],
           std::string("Eomm\1\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f\0\0\0\0\0\0\0\0", 24));
  strangers[4].send(MessageKind::result, bytes_of("no hello"), {}, Deadline(5s));
  // The last one stays and says nothing.
  Child rank_1([&] { return join_as(member(1, 2, rendezvous)); });
  EXPECT_TRUE(all_returned({rank_0.reap(), rank_1.reap()}, "joined"));
}

TEST(Rendezvous, WhoWasTurnedAwayIsMentionedAtTheDeadline) {
  const std::string rendezvous = fresh_rendezvous();
  Child rank_0([&] { return join_as(member(0, 2, rendezvous, 500ms)); });
  Channel stranger = connect_when_there(rendezvous);
  send_raw(stranger, "GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(says(rank_0.reap().error, ErrorCode::deadline,
                   {"rank 1 did not join", "turned away: process " + std::to_string(getpid())}));
}

TEST(Rendezvous, AMessageOfThousandsOfPacketsNeverSentDoesNotBlockTheOthers) {
  const std::string rendezvous = fresh_rendezvous();
  Child rank_0([&] { return join_as(member(0, 2, rendezvous)); });
  Channel stranger = connect_when_there(rendezvous);
  // A valid header that announces a hello of 200 MB, then nothing.
  send_raw(stranger, std::string("\x45\x6f\x6d\x4d\1\0\0\0\0\0\0\x0c\0\0\0\0\0\0\0\0\0\0\0\0", 24));
  Child rank_1([&] { return join_as(member(1, 2, rendezvous)); });
  EXPECT_TRUE(all_returned({rank_0.reap(), rank_1.reap()}, "joined"));
}

TEST(Rendezvous, AnotherProtocolVersionIsAMismatchOnBothSides) {
  const std::string rendezvous = fresh_rendezvous();
  Child rank_0([&] { return join_as(member(0, 2, rendezvous)); });
  Channel newer = connect_when_there(rendezvous);
  say_hello(newer, {kProtocolVersion + 1, 1, 2});
  const Error told = read_failure(hear(newer));
  EXPECT_TRUE(says(told, ErrorCode::mismatch, {"version 2", "version 1", "same megamoe"}));
  EXPECT_TRUE(says(rank_0.reap().error, ErrorCode::mismatch, {told.what()}));
}

TEST(Rendezvous, AnotherGroupSizeIsAMismatchOnEveryRankThatCame) {
  const std::string rendezvous = fresh_rendezvous();
  Child rank_0([&] { return join_as(member(0, 3, rendezvous)); });
  Channel rank_1 = connect_when_there(rendezvous);
  say_hello(rank_1, {kProtocolVersion, 1, 3});
  Child rank_2([&] { return join_as(member(2, 4, rendezvous)); });
  const std::vector<std::string> words = {"rank 2 of 4", "group of 3"};
  EXPECT_TRUE(says(rank_0.reap().error, ErrorCode::mismatch, words));
  EXPECT_TRUE(says(rank_2.reap().error, ErrorCode::mismatch, words));
  EXPECT_TRUE(says(read_failure(hear(rank_1)), ErrorCode::mismatch, words));
}

TEST(Rendezvous, TwoProcessesThatClaimOneRankAreNamed) {
  const std::string rendezvous = fresh_rendezvous();
  Child rank_0([&] { return join_as(member(0, 3, rendezvous)); });
  Channel first = connect_when_there(rendezvous);
  say_hello(first, {kProtocolVersion, 1, 3});
  Child second([&] { return join_as(member(1, 3, rendezvous)); });
  const std::vector<std::string> words = {"both claim rank 1", std::to_string(getpid()),
                                          std::to_string(second.process())};
  EXPECT_TRUE(says(rank_0.reap().error, ErrorCode::mismatch, words));
  EXPECT_TRUE(says(second.reap().error, ErrorCode::mismatch, words));
}

TEST(Rendezvous, ASecondRank0IsNamed) {
  const std::string rendezvous = fresh_rendezvous();
  Child rank_0([&] { return join_as(member(0, 2, rendezvous)); });
  connect_when_there(rendezvous);
  EXPECT_TRUE(says(error_of([&] { join_as(member(0, 2, rendezvous)); }), ErrorCode::mismatch,
                   {"two processes claim rank 0", rendezvous}));
}

TEST(Rendezvous, TwoRanksInOneProcessAreSentToAThreadGroup) {
  const std::string rendezvous = fresh_rendezvous();
  std::optional<Error> other;
  std::thread rank_1([&] { other = error_of([&] { join_as(member(1, 2, rendezvous)); }); });
  const auto mine = error_of([&] { join_as(member(0, 2, rendezvous)); });
  rank_1.join();
  EXPECT_TRUE(says(mine, ErrorCode::invalid_argument, {"second rank", "thread group"}));
  EXPECT_TRUE(says(other, ErrorCode::invalid_argument, {"second rank", "thread group"}));
}

TEST(Rendezvous, AProcessOfAnotherUserIsTurnedAway) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string rendezvous = fresh_rendezvous();
  const std::string name = socket_name(rendezvous);
  Child rank_0([&] { return join_as(member(0, 2, rendezvous)); });
  connect_when_there(rendezvous);
  Child stranger([&]() -> std::string {
    if (setresuid(kNobody, kNobody, kNobody) != 0) return "no other user";
    Channel channel = *connect_to(name);
    say_hello(channel, {kProtocolVersion, 1, 2});
    Message message;
    Channel::State state = Channel::State::blocked;
    while ((state = channel.receive(message)) == Channel::State::blocked) std::this_thread::yield();
    return state == Channel::State::closed ? "turned away" : "heard";
  });
  EXPECT_EQ(stranger.reap().text, "turned away");
  Child rank_1([&] { return join_as(member(1, 2, rendezvous)); });
  EXPECT_TRUE(all_returned({rank_0.reap(), rank_1.reap()}, "joined"));
}

TEST(Rendezvous, ANameHeldByAnotherUserIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string rendezvous = fresh_rendezvous();
  const std::string name = socket_name(rendezvous);
  Child squatter([&]() -> std::string {
    if (setresuid(kNobody, kNobody, kNobody) != 0) return "no other user";
    const FileDescriptor listener = listen_at(name);
    std::this_thread::sleep_for(20s);
    return "";
  });
  EXPECT_TRUE(says(error_of([&] { join_as(member(1, 2, rendezvous)); }), ErrorCode::mismatch,
                   {"another user", "got user 65534"}));
}

TEST(Rendezvous, LongTextsMeetAtNamesOfTheirOwn) {
  const std::string text = fresh_rendezvous() + std::string(200, 'x');
  EXPECT_NE(socket_name(text + "a"), socket_name(text + "b"));
  EXPECT_LE(socket_name(text).size(), 107u);
  Child rank_0([&] { return join_as(member(0, 2, text)); });
  Child rank_1([&] { return join_as(member(1, 2, text)); });
  EXPECT_TRUE(all_returned({rank_0.reap(), rank_1.reap()}, "joined"));
}

TEST(Rendezvous, NonsenseArgumentsAreRefused) {
  const auto refuses = [](const ProcessGroupOptions& options, const std::string& word) {
    return says(error_of([&] { join_as(options); }), ErrorCode::invalid_argument, {word});
  };
  EXPECT_TRUE(refuses(member(0, 0, "x"), "1 to 250 ranks, got 0"));
  EXPECT_TRUE(refuses(member(0, 251, "x"), "got 251"));
  EXPECT_TRUE(refuses(member(2, 2, "x"), "0 to 1, got 2"));
  EXPECT_TRUE(refuses(member(-1, 2, "x"), "got -1"));
  EXPECT_TRUE(refuses(member(0, 2, ""), "without '/'"));
  EXPECT_TRUE(refuses(member(0, 2, "a/b"), "a/b"));
  EXPECT_TRUE(refuses(member(0, 2, "x", -1s), "deadline"));
}

}  // namespace
}  // namespace megamoe::testing_symmetric
