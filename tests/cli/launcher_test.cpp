// What the environments of launchers mean.
#include "cli/launcher.hpp"

#include <map>

#include <gtest/gtest.h>

#include "megamoe/error.hpp"

#include "cli/layer_options.hpp"
#include "cli/rank_processes.hpp"
#include "cli/rank_team.hpp"

namespace megamoe::cli {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::optional<LaunchedRank> launched(const Variables& variables) {
  return launched_rank(environment_of(variables));
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

const Variables kTorchrun{{"RANK", "1"},
                          {"WORLD_SIZE", "3"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "3"},
                          {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", "29500"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "2"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"PMIX_NAMESPACE", "prterun-a/17@1"}};
const Variables kPmi{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}};
const Variables kSlurm{{"SLURM_PROCID", "3"},
                       {"SLURM_NTASKS", "4"},
                       {"SLURM_NNODES", "1"},
                       {"SLURM_JOB_ID", "77"},
                       {"SLURM_STEP_ID", "2"}};

/// Refused, and every part stands in the message.
void expect_refused(const Variables& variables, const std::vector<std::string>& parts) {
  try {
    launched(variables);
    ADD_FAILURE() << "accepted; wanted an error with " << parts.front();
  } catch (const Error& error) {
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' is not in: " << error.what();
    }
  }
}

TEST(Launcher, EachOfTheFourIsRecognised) {
  const auto torchrun = launched(kTorchrun);
  ASSERT_TRUE(torchrun);
  EXPECT_EQ(torchrun->launcher, Launcher::torchrun);
  EXPECT_EQ(torchrun->rank, 1);
  EXPECT_EQ(torchrun->ranks, 3);
  const auto mpi = launched(kOpenMpi);
  ASSERT_TRUE(mpi);
  EXPECT_EQ(mpi->launcher, Launcher::open_mpi);
  EXPECT_EQ(mpi->rank, 2);
  EXPECT_EQ(mpi->rendezvous.find('/'), std::string::npos) << mpi->rendezvous;
  const auto pmi = launched(kPmi);
  ASSERT_TRUE(pmi);
  EXPECT_EQ(pmi->ranks, 2);
  const auto slurm = launched(kSlurm);
  ASSERT_TRUE(slurm);
  EXPECT_EQ(slurm->launcher, Launcher::slurm);
  EXPECT_EQ(slurm->rank, 3);
}

TEST(Launcher, NothingIsFoundOutsideLaunchersAndInBatchScripts) {
  EXPECT_FALSE(launched({}));
  EXPECT_FALSE(launched({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}));
  EXPECT_FALSE(launched(without(with(kSlurm, {{"SLURM_PROCID", "0"}}), "SLURM_STEP_ID")));
}

TEST(Launcher, AllRanksOfALaunchMeetAtOnePlaceAndOtherLaunchesAtOthers) {
  for (const auto& [one, rank] : std::vector<std::pair<Variables, Variables>>{
           {kTorchrun, {{"RANK", "2"}, {"LOCAL_RANK", "2"}}},
           {kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}}},
           {kPmi, {{"PMI_RANK", "1"}}},
           {kSlurm, {{"SLURM_PROCID", "0"}}}}) {
    EXPECT_EQ(launched(one)->rendezvous, launched(with(one, rank))->rendezvous);
  }
  for (const auto& [one, other] : std::vector<std::pair<Variables, Variables>>{
           {kTorchrun, {{"MASTER_PORT", "29501"}}},
           {kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}}},
           {kOpenMpi, {{"PMIX_NAMESPACE", "other"}}},
           {kSlurm, {{"SLURM_STEP_ID", "3"}}},
           {kSlurm, {{"SLURM_JOB_ID", "78"}}}}) {
    EXPECT_NE(launched(one)->rendezvous, launched(with(one, other))->rendezvous);
  }
}

TEST(Launcher, MissingVariablesAreNamed) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    expect_refused(without(kTorchrun, name), {std::string(name) + " is not set", "torchrun"});
  }
  expect_refused(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"), {"OMPI_COMM_WORLD_SIZE is not set"});
  expect_refused(without(kPmi, "PMI_RANK"), {"PMI_RANK is not set"});
  expect_refused(without(kSlurm, "SLURM_PROCID"), {"SLURM_PROCID is not set"});
  expect_refused(without(kSlurm, "SLURM_JOB_ID"), {"SLURM_JOB_ID is not set"});
  expect_refused(without(kSlurm, "SLURM_STEP_ID"), {"SLURM_STEP_ID is not set", "srun"});
}

TEST(Launcher, ValuesThatCannotBeAreNamed) {
  expect_refused(with(kTorchrun, {{"RANK", "one"}}), {"RANK is 'one'"});
  expect_refused(with(kTorchrun, {{"RANK", "-1"}}), {"RANK is '-1'"});
  expect_refused(with(kTorchrun, {{"WORLD_SIZE", "1"}}), {"RANK is 1", "WORLD_SIZE is 1"});
  expect_refused(with(kTorchrun, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE is 0"});
  expect_refused(with(kTorchrun, {{"LOCAL_RANK", "0"}}), {"LOCAL_RANK is 0"});
  expect_refused(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "4"}}), {"LOCAL_WORLD_SIZE is 4"});
}

TEST(Launcher, LaunchersThatDisagreeAreNamedAndOneRankOfAnOuterOneIsNoDisagreement) {
  expect_refused(with(kTorchrun, kSlurm), {"torchrun says rank 1 of 3", "srun says rank 3 of 4"});
  const auto inner =
      launched(with(kTorchrun, with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}})));
  ASSERT_TRUE(inner);
  EXPECT_EQ(inner->launcher, Launcher::torchrun);
  const auto same =
      launched(with(kTorchrun, with(kSlurm, {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "3"}})));
  ASSERT_TRUE(same);
  EXPECT_EQ(same->launcher, Launcher::torchrun);
}

TEST(Launcher, RanksOnSeveralHostsAreRefusedByName) {
  expect_refused(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}}), {"LOCAL_WORLD_SIZE is 2", "hosts"});
  expect_refused(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}), {"hosts"});
  expect_refused(with(kPmi, {{"MPI_LOCALNRANKS", "1"}}), {"MPI_LOCALNRANKS is 1", "hosts"});
  expect_refused(with(kSlurm, {{"SLURM_NNODES", "2"}}), {"SLURM_NNODES is 2", "hosts"});
}

TEST(Launcher, RanksThatContradictItAreRefused) {
  LayerOptionValues values;
  values.ranks = 2;
  try {
    make_team(values, environment_of(kTorchrun));
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--ranks is 2"), std::string::npos) << error.what();
  }
  values.ranks = 3;
  EXPECT_FALSE(make_team(values, environment_of(kTorchrun)).leads());
  EXPECT_EQ(values.layer.ranks, 3);
  values.ranks = 5;
  EXPECT_TRUE(make_team(values, environment_of({})).leads());
  EXPECT_EQ(values.layer.ranks, 5);
}

TEST(Launcher, AShellOfOneTaskMayStartItsOwnRanks) {
  const Variables shell = with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}});
  LayerOptionValues values;
  make_team(values, environment_of(shell));
  EXPECT_EQ(values.layer.ranks, 1);
  values.ranks = 4;
  make_team(values, environment_of(shell));
  EXPECT_EQ(values.layer.ranks, 4);
}

/// Plays launched ranks in forked processes; what `play` returns at each.
std::vector<RankOutcome> launch(
    std::int64_t ranks, const std::function<std::string(RankTeam&, std::int64_t rank)>& play) {
  const std::string rendezvous = "launcher-test-" + std::to_string(getpid());
  return run_ranks(ranks, std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 0),
                   [&](std::int64_t rank, std::span<std::byte>) {
                     RankTeam team = RankTeam::launched({Launcher::pmi, rank, ranks, rendezvous},
                                                        std::chrono::seconds(20));
                     return play(team, rank);
                   });
}

TEST(LaunchedTeam, BringsReportsBeyondOneMessageAndPayloadsToRankZero) {
  const auto big = [](std::int64_t rank) {
    return std::string(static_cast<std::size_t>(rank * (3 << 19) + (rank == 1 ? 1 << 19 : 7)),
                       static_cast<char>('a' + rank));
  };
  const auto outcomes = launch(3, [&](RankTeam& team, std::int64_t rank) -> std::string {
    // Twice, as a command that compares several instruction sets does.
    for (int run = 0; run < 2; ++run) {
      const auto got = team.run({5, 0, 9}, [&](const RankWork& work) {
        for (std::byte& byte : work.payload) byte = static_cast<std::byte>(10 * run + rank);
        return big(work.group.rank());
      });
      if (rank != 0 && !got.empty()) return "a rank other than 0 got outcomes";
      for (std::size_t r = 0; r < got.size(); ++r) {
        if (got[r].report != big(static_cast<std::int64_t>(r))) return "another report";
        if (got[r].payload.size() != std::vector<std::size_t>{5, 0, 9}[r]) return "another size";
        for (std::byte byte : got[r].payload) {
          if (byte != static_cast<std::byte>(10 * run + static_cast<int>(r))) return "other bytes";
        }
      }
      if (rank == 0 && got.size() != 3) return "outcomes are missing";
    }
    return "right";
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.report, "right");
}

TEST(LaunchedTeam, TheOthersNameTheRankThatFailed) {
  const auto outcomes = launch(2, [](RankTeam& team, std::int64_t) -> std::string {
    try {
      team.run({0, 0}, [](const RankWork& work) -> std::string {
        if (work.group.rank() == 1) throw Error(ErrorCode::format, "of its own");
        return "";
      });
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  });
  EXPECT_EQ(outcomes[1].report, "of its own");
  EXPECT_NE(outcomes[0].report.find("rank 1"), std::string::npos) << outcomes[0].report;
  EXPECT_NE(outcomes[0].report.find("of its own"), std::string::npos) << outcomes[0].report;
}

}  // namespace
}  // namespace megamoe::cli
