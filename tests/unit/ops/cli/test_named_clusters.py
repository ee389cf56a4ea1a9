"""The file of named clusters, and what is said when it is wrong."""

from pathlib import Path

import pytest

from client.errors import ConfigError
from ops.cli.named_clusters import NamedCluster, file_path, find, read_all


def test_the_file_is_where_settings_of_a_user_are(tmp_path: Path) -> None:
    assert file_path({"QUIRE_CLUSTERS_FILE": "/f"}) == Path("/f")
    assert file_path({"XDG_CONFIG_HOME": "/c"}) == Path("/c/quire/clusters.toml")
    assert file_path({}) == Path.home() / ".config/quire/clusters.toml"


def test_a_cluster_is_found_by_name(tmp_path: Path) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text('[a]\nbootstrap_server = "h:1"\n[b]\nzookeeper = "z:2"\nadmin = "http://u"\n')
    assert find("a", file) == NamedCluster("h:1")
    assert find("b", file) == NamedCluster(zookeeper="z:2", admin="http://u")
    with pytest.raises(ConfigError, match=r"no cluster 'c' in .*; it has a, b. A table"):
        find("c", file)


def test_without_a_file_there_are_no_clusters(tmp_path: Path) -> None:
    assert read_all(tmp_path / "none") == {}
    with pytest.raises(ConfigError, match="it has none"):
        find("c", tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[a", "cannot be read"),
        ('x = "y"', "'x' stands outside of a cluster"),
        ("[a]\nbootstrap_servers = 'h:1'", "did you mean bootstrap_server"),
        ("[a]\nqqq = 'h:1'", "has no setting 'qqq'; there is bootstrap_server, admin"),
        ("[a]\nbootstrap_server = 1", r"bootstrap_server of \[a\] must be text in quotes"),
        ("[a]\nadmin_token = 't'", r"\[a\] has no address"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_all(file)
