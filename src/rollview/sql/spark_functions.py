"""Spark's own functions: those that a view or a query may call, and why the others are refused.

A function may be called if its value follows from its arguments alone, and if it reaches nothing but them.
The list names what is allowed: a function that a later Spark brings is refused until it has been reviewed:
see it (`tests/spark/test_gate.py` compares the list with Spark's).
"""

from __future__ import annotations


def names_in(text: str) -> frozenset[str]:
    """The words of a text, each a name."""
    return frozenset(text.split())


_CLOCK = "its value depends on when the view is computed, and no source reports that"
_SESSION = "its value depends on where and by whom the view is computed"
_CHANCE = "it returns a different value each time the view is computed"
_OUTSIDE = "it reaches beyond the rows that it is given"
_TABLE = "it is a table of Spark's own, and not of a source"

REFUSED: dict[str, str] = {
    **dict.fromkeys(
        ("now", "curdate", "current_date", "current_time", "current_timestamp", "localtimestamp"), _CLOCK
    ),
    **dict.fromkeys(
        (
            *("current_timezone", "current_user", "session_user", "user", "version", "current_path"),
            *("current_catalog", "current_database", "current_schema"),
            *("spark_partition_id", "input_file_name", "input_file_block_length", "input_file_block_start"),
        ),
        _SESSION,
    ),
    **dict.fromkeys(
        (
            *("rand", "randn", "random", "randstr", "uniform", "shuffle", "uuid", "aes_encrypt"),
            "monotonically_increasing_id",
            # A full KLL sketch keeps every other value, and tosses a coin for which.
            *("kll_sketch_agg_bigint", "kll_sketch_agg_double", "kll_sketch_agg_float"),
            *("kll_merge_agg_bigint", "kll_merge_agg_double", "kll_merge_agg_float"),
            *("kll_sketch_merge_bigint", "kll_sketch_merge_double", "kll_sketch_merge_float"),
        ),
        _CHANCE,
    ),
    **dict.fromkeys(
        (
            *("reflect", "try_reflect", "java_method"),
            *("from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf"),
            # Java fetches what a DOCTYPE names, be it a file or an address: a row decides about that.
            *("xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long"),
            *("xpath_number", "xpath_short", "xpath_string"),
        ),
        _OUTSIDE,
    ),
    **dict.fromkeys(("python_worker_logs", "sql_keywords", "collations"), _TABLE),
}
"""Functions that are refused, and the reason."""

WITHOUT_ARGUMENTS: dict[str, str] = {"unix_timestamp": _CLOCK}
"""Functions that are refused if they are given nothing."""

MOST_ARGUMENTS: dict[str, tuple[int, str]] = {
    "from_xml": (2, "its options can name a file"),
    "schema_of_xml": (1, "its options can name a file"),
}
"""Functions that are refused if they are given more, and the reason."""

AS_BARE_WORDS = names_in(
    "current_date current_time current_timestamp localtimestamp current_user session_user user current_path"
)
"""Functions that need no parentheses where no column is called so."""

ALLOWED = names_in(
    """
abs acos acosh add_months aes_decrypt aggregate and any any_value approx_count_distinct
approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate array
array_agg array_append array_compact array_contains array_distinct array_except array_insert
array_intersect array_join array_max array_min array_position array_prepend array_remove array_repeat
array_size array_sort array_union arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2
atanh avg base64 between bigint bin binary bit_and bit_count bit_get bit_length bit_or bit_xor
bitmap_and_agg bitmap_bit_position bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg
bool_and bool_or boolean bround btrim cardinality case cast cbrt ceil ceiling char char_length
character_length chr coalesce collate collation collect_list collect_set concat concat_ws contains conv
convert_timezone corr cos cosh cot count count_if count_min_sketch covar_pop covar_samp crc32 csc
cume_dist date date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd
datediff datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees dense_rank div
double e element_at elt encode endswith equal_null every exists exp explode explode_outer expm1 extract
factorial filter find_in_set first first_value flatten float floor forall format_number format_string
from_csv from_json from_unixtime from_utc_timestamp from_xml get get_json_object getbit greatest
grouping grouping_id hash hex histogram_numeric hll_sketch_agg hll_sketch_estimate hll_union
hll_union_agg hour hypot if ifnull ilike in initcap inline inline_outer instr int is_valid_utf8
is_valid_variant is_variant_null isnan isnotnull isnull json_array_length json_object_keys json_tuple
kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint
kll_sketch_get_quantile_double kll_sketch_get_quantile_float kll_sketch_get_rank_bigint
kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_to_string_bigint
kll_sketch_to_string_double kll_sketch_to_string_float kurtosis lag last last_day last_value lcase lead
least left len length levenshtein like listagg ln locate log log10 log1p log2 lower lpad ltrim
luhn_check make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz
make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries
map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with mask max max_by md5 mean
measure median min min_by minute mod mode month monthname months_between named_struct nanvl negative
next_day not nth_value ntile nullif nullifzero nvl nvl2 octet_length or overlay parse_json parse_url
percent_rank percentile percentile_approx percentile_cont percentile_disc pi pmod posexplode
posexplode_outer position positive pow power printf quarter quote radians raise_error range rank reduce
regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace
regexp_substr regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
regr_syy repeat replace reverse right rint rlike round row_number rpad rtrim schema_of_csv
schema_of_json schema_of_variant schema_of_variant_agg schema_of_xml sec second sentences sequence
session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned sign signum sin sinh size skewness
slice smallint some sort_array soundex space split split_part sqrt st_asbinary st_geogfromwkb
st_geomfromwkb st_setsrid st_srid stack startswith std stddev stddev_pop stddev_samp str_to_map string
string_agg struct substr substring substring_index sum tan tanh theta_difference theta_intersection
theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union theta_union_agg time
time_bucket time_diff time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis
time_to_seconds time_trunc timestamp timestamp_micros timestamp_millis timestamp_seconds tinyint
to_binary to_char to_csv to_date to_json to_number to_time to_timestamp to_timestamp_ltz
to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar to_variant_object to_xml transform
transform_keys transform_values translate trim trunc try_add try_aes_decrypt try_avg try_divide
try_element_at try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz
try_mod try_multiply try_parse_json try_parse_url try_subtract try_sum try_to_binary try_to_date
try_to_number try_to_time try_to_timestamp try_url_decode try_validate_utf8 try_variant_get
tuple_difference_double tuple_difference_integer tuple_difference_theta_double
tuple_difference_theta_integer tuple_intersection_agg_double tuple_intersection_agg_integer
tuple_intersection_double tuple_intersection_integer tuple_intersection_theta_double
tuple_intersection_theta_integer tuple_sketch_agg_double tuple_sketch_agg_integer
tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer tuple_union_agg_double
tuple_union_agg_integer tuple_union_double tuple_union_integer tuple_union_theta_double
tuple_union_theta_integer typeof ucase unbase64 unhex unix_date unix_micros unix_millis unix_seconds
unix_timestamp upper url_decode url_encode validate_utf8 var_pop var_samp variance variant_explode
variant_explode_outer variant_get vector_avg vector_cosine_similarity vector_inner_product
vector_l2_distance vector_norm vector_normalize vector_sum weekday weekofyear when width_bucket window
window_time xxhash64 year zeroifnull zip_with
"""
)
"""Functions whose value follows from their arguments."""
