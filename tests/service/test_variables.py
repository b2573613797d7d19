"""`${NAME}` in settings: a password may have any characters, and nobody gets to read it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from rollview.config.project_file import expand, is_secret, read_project_file
from rollview.secrets import Secrets, passwords_in


def _expanded(text: str, **values: str) -> str:
    return expand(text, values.__getitem__)


WRITTEN = st.text(st.characters(min_codepoint=33, max_codepoint=300), min_size=1, max_size=20)


@given(WRITTEN)
def test_a_password_may_have_any_characters(password: str) -> None:
    address = _expanded(
        "postgresql://app:${PASSWORD}@db.example:5432/shop?sslmode=require", PASSWORD=password
    )
    assert conninfo_to_dict(address) == {
        "user": "app",
        "password": password,
        "host": "db.example",
        "port": "5432",
        "dbname": "shop",
        "sslmode": "require",
    }
    assert unquote(urlsplit(address).password or "") == password


@given(WRITTEN)
def test_key_value_settings_are_quoted(password: str) -> None:
    address = _expanded("host=db user=app password=${PASSWORD} dbname=shop", PASSWORD=password)
    assert conninfo_to_dict(address)["password"] == password


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${X}", "a:b@c/d"),
        ("postgresql://${X}", "postgresql://a:b@c/d"),
        ("postgresql://${X}@host/db", "postgresql://a:b@c/d@host/db"),
        ("postgresql://user@${X}", "postgresql://user@a:b@c/d"),
        ("postgresql://user@host/${X}", "postgresql://user@host/a%3Ab%40c%2Fd"),
        ("postgresql://${X}:${X}@host", "postgresql://a%3Ab%40c%2Fd:a%3Ab%40c%2Fd@host"),
        ("./${X}.db", "./a:b@c/d.db"),
        ("no variable", "no variable"),
    ],
)
def test_a_value_is_written_as_its_place_demands(text: str, expected: str) -> None:
    assert _expanded(text, X="a:b@c/d") == expected


def test_what_is_a_secret_by_its_name() -> None:
    assert all(map(is_secret, ("CRM_PASSWORD", "pwd", "API_KEY", "spark.hadoop.fs.s3a.secret.key", "TOKEN")))
    # The keys of tables are no secrets, and errors must be able to name them.
    assert not any(map(is_secret, ("key.customer", "KEYSPACE", "host", "schema")))


def test_secrets_are_hidden_whole_encoded_and_of_drivers_in_parts() -> None:
    """What an address makes of a password that was not encoded: a host, a port, a database of that name."""
    secrets = Secrets(["p@ssw0rd/with:parts"])
    for text in ("p@ssw0rd/with:parts", "p%40ssw0rd%2Fwith%3Aparts", "p%40ssw0rd%2fwith%3aparts"):
        assert secrets.hide(f"no: {text}") == "no: ***"
    for text in ('host "ssw0rd" is unknown', "with", "parts", "ssw0rd/with"):
        hidden = secrets.hide_foreign(text)
        assert not [part for part in ("ssw0rd", "with", "parts") if part in hidden], hidden
    assert secrets.hide("nothing of it, with all parts") == "nothing of it, with all parts"
    assert secrets.hide_foreign("nothing of it") == "nothing of it"


COMMON = (
    "change me",
    "a",
    "plan",
    "row",
    "3",
    "view",
    "csn",
    "rollview",
    "Exchange",
    "100",
    "password",
    "null",
)
SENTENCES = (
    "Exchange hashpartitioning(plan#3, 200)",
    "view plan: loaded (first load); about 2,120 changes, 3 rows, a row of 100",
    "source crm: unchanged; change me if the password changes: dsn: postgresql://user:${PASSWORD}@host:5432/db",
    "view v cannot be computed at csn 3: [DIVIDE_BY_ZERO] Division by zero (in a / 3). It changed a.t (a=3)",
    "SELECT password, token AS t FROM a.t WHERE token = 'a' AND passengers = 3",
    "stopped: view row from csn 3 on: no row; `rollview setup --reload row` loads it",
    '{"view": "plan", "csn": 3, "rows": ["a", "row", null], "kind": "change me"}',
    "http://127.0.0.1:8765/views/plan?at=3",
)


@pytest.mark.parametrize("password", COMMON)
def test_a_common_word_as_a_password_leaves_our_sentences_as_they_are(password: str) -> None:
    secrets = Secrets([password])
    assert [secrets.hide(each) for each in SENTENCES] == list(SENTENCES)


_WORDS = st.sampled_from(COMMON)
_ANY = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
_ODD = st.text("aB3 '\"@:/?#%&=+\\$;é", min_size=1, max_size=12)
PASSWORDS = (_WORDS | _ODD | _ANY).filter(lambda each: each.strip("*${} ") != "")

PLACES = {
    # By place: what is said, and how the password is written there.
    "an address": ("cannot open postgresql://u:{}@h/d", lambda p: quote(p, safe="")),
    "a form": ("GET /?password={}&x=1", quote_plus),
    "a setting": ("host=h password='{}' user=u", lambda p: p.replace("\\", "\\\\").replace("'", "\\'")),
    "JSON": ('<"password": "{}", "x": 1>', lambda p: json.dumps(p)[1:-1]),
    "JSON without ASCII": ('<"token": "{}", "x": 1>', lambda p: json.dumps(p, ensure_ascii=False)[1:-1]),
    "a statement": ("near ALTER ROLE u PASSWORD '{}';", lambda p: p.replace("'", "''")),
}


@pytest.mark.parametrize("place", PLACES)
@given(password=PASSWORDS)
def test_a_password_is_hidden_where_secrets_travel(place: str, password: str) -> None:
    """Also one that nobody knows as one: it may be that of somebody else."""
    text, writing = PLACES[place]
    said = text.format(writing(password))
    assert Secrets([]).hide_foreign(said) == text.format("***")
    if place != "a statement":
        assert Secrets([]).hide(said) == Secrets([password]).hide(said) == text.format("***")
    about = text[text.index("{}") - 1 : text.index("{}") + 3]
    assert about.format(writing(password)) not in Secrets([password]).hide_foreign(said)


@given(password=PASSWORDS)
def test_a_driver_may_repeat_a_password_in_any_words(password: str) -> None:
    """As it is, between quotes, or as Python and JSON write it."""
    secrets = Secrets([password])
    for written in (f'"{password}"', f"'{password}'", json.dumps(password), repr(password), f"({password})"):
        hidden = secrets.hide_foreign(f"no role {written} >")
        assert "***" in hidden and written not in hidden, hidden


def _is_no_word(password: str) -> bool:
    """Not words or numbers, be they joined as in a name (`order_items`), a date or a time."""
    return len(password) >= 6 and not re.sub("[ _.,:-]", "", password).isalnum()


@given(password=PASSWORDS.filter(_is_no_word))
@example(password="AAAA_A!")
def test_a_password_that_is_no_word_is_hidden_in_every_text(password: str) -> None:
    secrets = Secrets([password])
    for written in (password, quote(password, safe=""), json.dumps(password)[1:-1], repr(password)[1:-1]):
        hidden = secrets.hide(f"<<{written}>>")
        assert password not in hidden and written not in hidden, hidden


def test_no_representation_of_a_project_has_a_password(tmp_path: Path) -> None:
    text = "\n".join(
        (
            "name: x",
            "catalog: postgresql://u:s3cret-1@h/c",
            "spark: {spark.hadoop.fs.s3a.secret.key: s3cret-2}",
            "sources: {crm: {type: postgres, dsn: 'postgresql://u:s3cret-3@h/d'}}",
            "openlineage: {url: 'http://u:s3cret-4@h:1', api_key: s3cret-5}",
        )
    )
    (tmp_path / "rollview.yml").write_text(text)
    project = read_project_file(tmp_path)
    assert "s3cret" not in repr(project)
    assert "s3cret" not in project.secrets.hide(text)


@pytest.mark.parametrize(
    "address",
    ["postgresql://u:p%40ss@h/d", "mysql+x://u:p@ss@h:1/d", "host=h password='p@ss' user=u", "PASSWORD=p@ss"],
)
def test_passwords_in_addresses_are_found(address: str) -> None:
    assert "p@ss" in set(passwords_in(address))
