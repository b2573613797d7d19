"""`${NAME}` in settings: a password may have any characters, and nobody gets to read it."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from rollview.secrets import Secrets, passwords_in
from rollview.service.variables import expand, is_secret


def _expanded(text: str, **values: str) -> str:
    return expand(text, values.__getitem__)


PASSWORDS = st.text(st.characters(min_codepoint=33, max_codepoint=300), min_size=1, max_size=20)


@given(PASSWORDS)
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


@given(PASSWORDS)
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


def test_secrets_are_hidden_whole_encoded_and_in_parts() -> None:
    secrets = Secrets(["p@ssw0rd/with:parts"])
    for text in (
        "p@ssw0rd/with:parts",
        "p%40ssw0rd%2Fwith%3Aparts",
        'host "ssw0rd" is unknown',
        "with",
        "parts",
    ):
        assert "ssw0rd" not in secrets.hide(text) and "parts" not in secrets.hide(text)
    assert secrets.hide("nothing of it") == "nothing of it"


@pytest.mark.parametrize(
    "address",
    ["postgresql://u:p%40ss@h/d", "mysql+x://u:p@ss@h:1/d", "host=h password='p@ss' user=u", "PASSWORD=p@ss"],
)
def test_passwords_in_addresses_are_found(address: str) -> None:
    assert "p@ss" in set(passwords_in(address))
