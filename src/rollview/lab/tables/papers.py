"""Everything numbered in the five papers: what runs it, which tests try it, and which example replays it.

Where an algorithm runs is not written here: the registry knows. Tests are named as pytest names them, below
`tests`; a test of the repository checks that each exists, and that those of an entry with servers use them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Entry:
    """An algorithm, figure, example or claim of a paper.

    `runs` names algorithms of the registry. `servers` are those on which something else runs: a policy, a
    table, an answer. An entry with neither is a statement, which the simulator tries.
    """

    paper: str
    item: str
    what: str
    tests: tuple[str, ...]
    runs: tuple[str, ...] = ()
    servers: str = ""
    example: str = ""
    reason: str = ""
    """Why something that is no statement runs in the simulator only: a property of what it is."""


LIVE = "service/test_live_algorithms.py::test_every_algorithm_reaches_what_it_claims"
CLAIMS = "algorithms/test_claims.py::test_a_claim_holds"
REPLAYED = "algorithms/test_examples.py::test_a_replay_agrees_with_its_paper"
_POSTGRES = "service/test_beyer2000_on_postgres.py"


def _zhuge1996() -> Iterator[Entry]:
    def entry(
        item: str, what: str, *tests: str, runs: str = "", example: str = "", servers: str = ""
    ) -> Entry:
        key = f"zhuge1996/{example}" if example else ""
        return Entry("zhuge1996", item, what, tests, tuple(runs.split()), servers, key)

    examples = "algorithms/test_zhuge1996_examples.py"
    levels = "algorithms/test_zhuge1996_levels.py"
    yield entry("§1", "conventional maintenance", CLAIMS, LIVE, runs="conventional")
    yield entry(
        "§1",
        "ECA and ECA-Key, at one source",
        "algorithms/test_baselines.py::test_claims_hold_on_fifo",
        LIVE,
        runs="eca eca-key",
    )
    yield entry(
        "§3.1", "three transaction scenarios", "simulator/test_runs.py::test_generated_worlds_can_exist"
    )
    yield entry(
        "§4.2",
        "four levels of consistency",
        "simulator/test_checker.py::test_complete_in_any_order_that_keeps_each_sources_own",
    )
    yield entry(
        "§5.1",
        "source_evaluate",
        f"{examples}::test_example_2_next_source_goes_where_the_known_part_joins",
        example="2",
        runs="strobe t-strobe g-strobe c-strobe",
    )
    yield entry("Algorithm 1", "Strobe", CLAIMS, LIVE, runs="strobe")
    yield entry("Algorithm 2", "Transaction-Strobe", CLAIMS, LIVE, runs="t-strobe")
    yield entry("§5.4", "Global-Strobe", CLAIMS, LIVE, runs="g-strobe")
    yield entry("Algorithm 3", "Complete Strobe", CLAIMS, LIVE, runs="c-strobe")
    yield entry(
        "§6",
        "Complete Strobe, periodic",
        CLAIMS,
        f"{examples}::test_the_periodic_variant_shows_updates_that_waited_together",
        runs="c-strobe-3",
    )
    yield entry("§6", "C-TStrobe", CLAIMS, LIVE, runs="c-t-strobe")
    yield entry(
        "Figure 2",
        "consistency spectrum, as the text states it",
        f"{levels}::test_the_spectrum_of_figure_2",
        example="figure-2",
    )
    yield entry(
        "Example 1",
        "the anomaly",
        REPLAYED,
        "algorithms/test_baseline_examples.py::test_on_several_sources_the_anomaly_of_strobes_example_1_is_back",
        runs="conventional eca eca-key",
        example="1",
    )
    yield entry("Example 2", "next_source", REPLAYED, example="2")
    yield entry(
        "Example 3",
        "Strobe",
        REPLAYED,
        f"{examples}::test_example_3_strobe_avoids_the_deletion_anomaly",
        runs="strobe",
        example="3",
    )
    yield entry(
        "Example 4",
        "Strobe and T-Strobe on a transaction",
        REPLAYED,
        f"{examples}::test_example_4_a_transaction_is_shown_whole_or_in_halves",
        runs="strobe t-strobe",
        example="4",
    )
    yield entry(
        "Example 5",
        "C-Strobe",
        REPLAYED,
        f"{examples}::test_example_5_the_compensating_query_finds_a_duplicate",
        runs="c-strobe",
        example="5",
    )
    yield entry(
        "Example 6",
        "C-Strobe, other timing",
        REPLAYED,
        f"{examples}::test_example_6_the_compensating_query_finds_what_was_deleted",
        runs="c-strobe",
        example="6",
    )
    yield entry(
        "§6",
        "no more than K^(n − 2) compensating queries",
        REPLAYED,
        f"{levels}::test_ungrouped_compensating_queries_are_more_than_one_level",
        runs="c-strobe",
        example="6-ungrouped",
    )
    yield entry(
        "§6",
        "no more than (n − 1)! if grouped",
        REPLAYED,
        f"{levels}::test_compensating_queries_are_grouped_by_base_relation",
        runs="c-strobe",
        example="6-grouped",
    )
    yield entry(
        "§7",
        "as efficient as conventional maintenance while updates are rare",
        f"{levels}::test_it_costs_nothing_more_than_conventional_maintenance_without_concurrency",
        runs="strobe t-strobe g-strobe c-strobe",
    )


def _sze2000() -> Iterator[Entry]:
    def entry(item: str, what: str, *tests: str, runs: str = "version-numbers", example: str = "") -> Entry:
        key = f"sze2000/{example}" if example else ""
        return Entry("sze2000", item, what, tests, tuple(runs.split()), "", key)

    examples = "algorithms/test_sze2000_examples.py"
    mistakes = "algorithms/test_sze2000_mistakes.py::test_the_checker_catches"
    yield entry("report §3 to §5", "version numbers", CLAIMS, LIVE)
    yield entry(
        "report §6",
        "SWEEP and Nested SWEEP, for comparison",
        "algorithms/test_baselines.py::test_claims_hold_on_fifo",
        LIVE,
        runs="agrawal-sweep nested-sweep",
    )
    yield entry(
        "report §4.1",
        "one sub-query per source along the join graph",
        "algebra/test_join_graph.py::test_three_sub_queries_instead_of_five",
    )
    yield entry(
        "report §4.2",
        "irrelevant updates by foreign keys",
        f"{examples}::test_insertions_and_deletions_of_a_referenced_relation_are_irrelevant",
        "algorithms/test_referenced.py::test_fewer_sub_queries_and_rows",
        runs="version-numbers sweep",
    )
    for number, title, test in (
        ("1", "no interference", "test_example_1_no_interference"),
        ("2", "an interfering update (the paper's Example 1)", "test_example_2_an_interfering_insertion"),
        ("3", "misordered messages", "test_example_3_the_answer_overtakes_the_update"),
        ("4", "a lost message", "test_example_4_the_update_is_lost"),
        ("5", "Figure 1: sub-queries, time units, bytes", "test_example_5_three_sub_queries_instead_of_five"),
        ("6", "the view is asked (the paper's Example 2)", "test_example_6_the_view_is_asked_first"),
        ("7", "a modification", "test_example_7_a_modification_without_the_complete_tuple"),
        ("8", "Tables 1 to 3", "test_examples_8_to_12"),
        ("9", "Table 4", "test_examples_8_to_12"),
        ("10", "Table 5", "test_examples_8_to_12"),
        ("11", "Table 6", "test_examples_8_to_12"),
        ("12", "the states of the view", "test_examples_8_to_12"),
    ):
        yield entry(f"Example {number}", title, REPLAYED, f"{examples}::{test}", example=number)
    yield entry("Lemma 1 (paper: 1, 4)", "which updates interfere, which are missing", mistakes)
    yield entry(
        "paper's Lemma 2",
        "the view answers for what it functionally determines",
        f"{examples}::test_some_matches_in_the_view_are_not_all",
    )
    yield entry(
        "paper's Lemma 3",
        "deletions and modifications by key",
        f"{examples}::test_example_7_a_modification_without_the_complete_tuple",
        "algorithms/test_kept_keys.py::test_levels_hold_where_the_view_answers",
        runs="version-numbers sweep",
    )
    yield entry("Lemmas 2 to 4 (paper: 5 to 7)", "missing updates", mistakes)
    yield entry("Lemmas 5 to 7", "interfering updates", mistakes)
    yield entry("Theorem 1", "the order of compensation", mistakes)
    yield entry(
        "Theorem 2",
        "complete consistency",
        "algorithms/test_sze2000_levels.py::test_complete",
        "algorithms/test_sze2000_levels.py::test_complete_in_every_interleaving",
    )


def _salem2000() -> Iterator[Entry]:
    def entry(
        item: str, what: str, *tests: str, runs: str = "", example: str = "", servers: str = ""
    ) -> Entry:
        key = f"salem2000/{example}" if example else ""
        return Entry("salem2000", item, what, tests, tuple(runs.split()), servers, key)

    queries, rolling = "algorithms/test_salem2000_queries.py", "algorithms/test_salem2000_rolling.py"
    yield entry(
        "Figures 1 to 3, 11",
        "propagate and apply, a timestamped view delta, control tables",
        "service/test_end_to_end.py::test_oracle_every_csn_of_every_view",
        "service/test_servers.py::test_views_follow_both_servers",
        "service/test_lifecycle.py::test_a_view_over_sqlite_delta_and_dumps",
        servers="PostgreSQL, MariaDB, SQLite, Delta, files",
    )
    yield entry(
        "§2",
        "which queries are realizable",
        REPLAYED,
        f"{queries}::test_the_papers_examples_of_what_is_realizable",
        f"{queries}::test_which_synchronous_queries_are_realizable",
        example="realizable",
    )
    yield entry(
        "Equation 1",
        "2ⁿ − 1 queries",
        REPLAYED,
        f"{queries}::test_equation_one_for_three_relations",
        LIVE,
        runs="equation-1",
        example="equation-1",
    )
    yield entry(
        "Equation 2",
        "n queries",
        REPLAYED,
        f"{queries}::test_equation_two_for_three_relations",
        LIVE,
        runs="equation-2",
        example="equation-2",
    )
    yield entry(
        "Equation 3",
        "four queries for two relations",
        REPLAYED,
        f"{queries}::test_equation_three",
        runs="compute-delta",
        example="equation-3",
    )
    yield entry("Figure 4", "ComputeDelta", CLAIMS, LIVE, runs="compute-delta")
    yield entry("Figure 5", "Propagate", CLAIMS, LIVE, runs="propagate")
    yield entry(
        "§3.3",
        "minimum timestamps, two deletions",
        REPLAYED,
        f"{queries}::test_two_deletions",
        runs="compute-delta",
        example="deletions",
    )
    yield entry(
        "§3.3",
        "minimum timestamps, two insertions",
        REPLAYED,
        f"{queries}::test_two_insertions",
        runs="compute-delta",
        example="insertions",
    )
    yield entry(
        "Figures 6 and 7",
        "ComputeDelta as regions",
        REPLAYED,
        f"{queries}::test_figure_seven_the_regions_add_up_to_the_l_shape",
        runs="compute-delta",
        example="figure-7",
    )
    yield entry(
        "Figure 8",
        "three iterations of Propagate",
        REPLAYED,
        f"{rolling}::test_figure_eight_and_the_number_of_queries",
        runs="propagate",
        example="figure-8",
    )
    yield entry(
        "Figure 9",
        "rolling propagation",
        REPLAYED,
        f"{rolling}::test_figure_nine",
        f"{rolling}::test_the_state_after_figure_nine",
        runs="rolling",
        example="figure-9",
    )
    yield entry("Figure 10", "RollingPropagate, with its layers", CLAIMS, LIVE, runs="rolling")
    yield entry(
        "Figure 10",
        "RollingPropagate to the letter",
        f"{rolling}::test_printed_compensation_takes_back_too_much_for_three_relations",
        "algorithms/test_salem2000_runs.py::test_rolling_as_printed_is_not_complete_for_three_relations",
        runs="rolling-as-printed",
    )
    yield entry(
        "Definition 4.1",
        "net effect",
        "algebra/test_bag_laws.py::test_plus_is_a_commutative_group",
        "algebra/test_bag_laws.py::test_select_and_project_are_linear",
    )
    yield entry(
        "Definition 4.2, Lemma 4.1",
        "timed delta tables, split",
        f"{queries}::test_lemma_4_1_a_timed_delta_table_is_split_into_two",
    )
    yield entry(
        "Lemma 4.2",
        "delta tables combined",
        REPLAYED,
        f"{queries}::test_lemma_4_2_needs_timed_delta_tables",
        example="lemma-4.2",
    )
    yield entry(
        "Theorem 4.1",
        "ComputeDelta is right",
        f"{queries}::test_theorem_4_1_compute_delta_gives_a_timed_delta",
        f"{queries}::test_theorem_4_1_from_a_vector_of_times",
        runs="compute-delta",
    )
    yield entry(
        "Theorem 4.2", "Propagate is right", f"{queries}::test_theorem_4_2_propagate", runs="propagate"
    )
    yield entry(
        "Theorem 4.3",
        "RollingPropagate is right: with layers, at all times",
        f"{rolling}::test_theorem_4_3_at_all_times_and_across_a_crash",
        runs="rolling",
    )


_TORN = "it loses updates and tears transactions, which is what it is there to show"
_LOG = "it is for databases whose log is not read; a server's log orders commits without lock or clock"


def _beyer2000() -> Iterator[Entry]:
    def entry(
        item: str,
        what: str,
        *tests: str,
        runs: str = "",
        example: str = "",
        servers: str = "",
        reason: str = "",
    ) -> Entry:
        key = f"beyer2000/{example}" if example else ""
        return Entry("beyer2000", item, what, tests, tuple(runs.split()), servers, key, reason)

    ipda, net = "algorithms/test_beyer2000.py", "algorithms/test_beyer2000_net_effect.py"
    valid = "algorithms/test_beyer2000_valid_time.py"
    schedules = f"{ipda}::test_algorithm_2_over_all_schedules"
    yield entry(
        "Figure 1a",
        "policy immediate",
        "algorithms/test_policies.py::test_oracle_all_properties_hold",
        "service/test_immediate.py::test_oracle_at_the_server_at_any_moment_and_in_the_lake_at_every_csn",
        servers="PostgreSQL",
    )
    yield entry(
        "Figure 1b",
        "policy IPDA",
        CLAIMS,
        "algorithms/test_policies.py::test_oracle_all_properties_hold",
        "service/test_ipda.py",
        runs="ipda",
        servers="PostgreSQL",
    )
    yield entry(
        "Figure 1c",
        "policy DPDA (deferred), and snapshot",
        "algorithms/test_policies.py::test_oracle_all_properties_hold",
        "service/test_end_to_end.py::test_oracle_every_csn_of_every_view",
        "service/test_servers.py::test_views_follow_both_servers",
        "service/test_lifecycle.py::test_a_view_over_sqlite_delta_and_dumps",
        servers="PostgreSQL, MariaDB, SQLite, Delta, files",
    )
    yield entry(
        "§1.2",
        "conflicts on a record of the view",
        REPLAYED,
        "service/test_immediate.py::test_the_second_writer_of_a_group_waits",
        f"{_POSTGRES}::test_state_count_and_its_copies",
        servers="PostgreSQL",
        example="1.2",
    )
    yield entry(
        "Algorithm 1, Figure 2",
        "initial apply process",
        REPLAYED,
        f"{ipda}::test_algorithm_1_on_the_delta_table_of_figure_2",
        example="figure-2",
        reason=_TORN,
    )
    yield entry(
        "§4.1, §4.2",
        "lost updates; one lock for clock and insertion",
        REPLAYED,
        f"{ipda}::test_lost_update_at_2_59",
        f"{ipda}::test_the_lock_holds_the_apply_back",
        example="4.1",
        reason=_LOG,
    )
    yield entry(
        "§4.3, §4.5",
        "not atomic across views; commit records",
        REPLAYED,
        f"{ipda}::test_withdrawals_without_deposits",
        f"{_POSTGRES}::test_withdrawals_and_deposits_at_three",
        servers="PostgreSQL",
        example="4.3",
    )
    yield entry(
        "§4.4, §4.5",
        "transactions reordered; commit records",
        REPLAYED,
        f"{ipda}::test_the_transfer_via_a2_reordered",
        f"{_POSTGRES}::test_withdrawals_and_deposits_at_three",
        servers="PostgreSQL",
        example="4.4",
    )
    yield entry(
        "§4.6, §4.7",
        "several clocks lose updates; one clock",
        REPLAYED,
        f"{ipda}::test_several_clocks_lose_an_update",
        example="4.6",
        reason=_LOG,
    )
    yield entry(
        "§4.6, §4.7",
        "several clocks reorder; one clock",
        REPLAYED,
        f"{ipda}::test_several_clocks_reorder",
        example="4.6-order",
        reason=_LOG,
    )
    yield entry(
        "Algorithm 2",
        "corrected apply process",
        schedules,
        "algorithms/test_beyer2000_worlds.py::test_algorithm_2_keeps_all_properties",
        "algorithms/test_beyer2000_worlds.py::test_algorithm_2_and_the_table_that_is_locked",
        reason=_LOG,
    )
    yield entry(
        "Lemmas 1 and 2",
        "what makes a view consistent",
        f"{ipda}::test_real_time_implies_the_other_properties",
    )
    yield entry(
        "Lemma 3",
        "commit times are a serial order",
        f"{ipda}::test_real_time_is_the_assigned_commit_time",
        schedules,
    )
    yield entry("Lemmas 4 to 8, Theorem 1", "Algorithm 2 is right", schedules, f"{ipda}::test_the_spectrum")
    yield entry(
        "§5",
        "net effect of a summary delta",
        REPLAYED,
        f"{net}::test_state_count_drops_by_two",
        example="5-count",
    )
    yield entry(
        "§5",
        "net effect under a key",
        REPLAYED,
        f"{net}::test_the_net_effect_of_the_petunias_is_the_first_and_the_last_record",
        f"{_POSTGRES}::test_petunias",
        servers="PostgreSQL",
        example="5-petunias",
    )
    yield entry(
        "§5",
        "a delta table condensed",
        REPLAYED,
        f"{net}::test_condensing_3_00_to_4_00",
        f"{_POSTGRES}::test_petunias",
        servers="PostgreSQL",
        example="5-condense",
    )
    yield entry("Lemma 9", "summary deltas", f"{net}::test_lemma_9_summary_deltas")
    yield entry(
        "Lemmas 10 and 11",
        "other deltas",
        f"{net}::test_lemmas_10_and_11_under_a_key",
        f"{net}::test_lemma_10_without_a_key",
    )
    yield entry(
        "Figure 3, §6",
        "valid times, and which tables may be combined",
        REPLAYED,
        f"{valid}::test_debits_and_credits_by_commit_time_are_kept_apart",
        f"{_POSTGRES}::test_debits_and_credits",
        servers="PostgreSQL",
        example="figure-3",
    )


@cache
def every_entry() -> tuple[Entry, ...]:
    """Everything, paper by paper."""
    return (*_beyer2000(), *_salem2000(), *_sze2000(), *_zhuge1996())
