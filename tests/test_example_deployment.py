"""The files of examples/deployment: they say the same, and what the compose file says runs, without containers.

`nox -s lint` has each file looked at by its linter (`tests/deployment_files.py`).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
import yaml
from drivers import PATIENCE, until
from ports import HeldPort
from psycopg.sql import SQL, Identifier, Literal

import phronomy
from phronomy.inbox import InboxClient
from phronomy.testing import ChatServer, call

pytestmark = pytest.mark.unmeasured  # it starts processes

FILES = Path(__file__).parents[1] / "examples" / "deployment"

SECRETS = {"POSTGRES_PASSWORD": "pass word/1", "OPENAI_API_KEY": "none-is-needed", "OIDC_CLIENT_SECRET": "c" * 40}
"""The values that somebody fills in."""


def read(name: str) -> str:
    return (FILES / name).read_text()


def settings() -> dict[str, str]:
    """The text of .env, once it is filled in."""
    given = dict(re.findall(r"^(\w+)=(.*)$", read(".env.example"), re.MULTILINE))
    assert {name for name, value in given.items() if not value} == set(SECRETS)
    return given | SECRETS


def instructions(name: str) -> list[str]:
    """The text after this instruction of the Dockerfile, wherever it stands in its last stage."""
    stage = read("Dockerfile").replace("\\\n", " ").rpartition("\nFROM ")[2]
    return re.findall(rf"^{name} (.+)$", stage, re.MULTILINE)


def services() -> dict[str, Any]:
    """The services of the compose file, with the settings put in, and with what the image has where they say nothing."""

    def filled(found: re.Match[str]) -> str:
        return settings()[found[1]]

    text = re.sub(r"\$\{(\w+):\?put it into \.env\}", filled, read("compose.yaml"))
    assert "$" not in text
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    (checked,) = instructions("HEALTHCHECK")
    for service in (found["worker"], found["inbox"]):
        service.setdefault("healthcheck", {"test": ["CMD", *json.loads(checked[checked.index("[") :])]})
    return found


def manifests() -> dict[str, dict[str, Any]]:
    """The manifests of Kubernetes, by kind and name."""
    return {f"{each['kind']} {each['metadata']['name']}": each for each in yaml.safe_load_all(read("kubernetes.yaml"))}


def job() -> dict[str, Any]:
    """The job that is run before a deploy."""
    found: dict[str, Any] = yaml.safe_load(read("kubernetes-drift.yaml"))
    return found


def container_of(manifest: dict[str, Any]) -> dict[str, Any]:
    (found,) = manifest["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def container(part: str) -> dict[str, Any]:
    return container_of(manifests()[f"Deployment refund-desk-{part}"])


def unit(part: str) -> dict[str, str]:
    """The settings of a unit of systemd that are there once."""
    return dict(re.findall(r"^(\w+)=(.*)$", read(f"desk-{part}.service"), re.MULTILINE))


def seconds(text: str) -> int:
    found = re.fullmatch(r"(\d+)s", text)
    assert found is not None
    return int(found[1])


# They say the same


@pytest.mark.parametrize("part", ["worker", "inbox"])
def test_every_file_runs_the_same_command(part: str) -> None:
    command = services()[part]["command"]
    assert container(part)["args"] == command
    program, *arguments = shlex.split(unit(part)["ExecStart"])
    assert program.endswith("/bin/phronomy") and json.loads(instructions("ENTRYPOINT")[0]) == ["phronomy"]
    assert arguments == [each.replace("0.0.0.0", "127.0.0.1") for each in command], "beside its proxy, on one machine"
    if part == "worker":
        assert json.loads(instructions("CMD")[0]) == command


def test_every_file_gives_more_time_to_stop_than_the_process_takes() -> None:
    """`--grace` for the runs of a worker; five seconds for the requests of the inbox, and five before that in Kubernetes."""
    command = services()["worker"]["command"]
    grace = int(command[command.index("--grace") + 1])
    for part, least in (("worker", grace), ("inbox", 5)):
        pod = manifests()[f"Deployment refund-desk-{part}"]["spec"]["template"]["spec"]
        assert seconds(services()[part]["stop_grace_period"]) >= least + 10
        assert int(unit(part)["TimeoutStopSec"]) >= least + 10
        assert pod["terminationGracePeriodSeconds"] >= least + 5 + 10


def test_every_process_is_given_the_settings_that_it_reads() -> None:
    read_by_app = set(re.findall(r'environ\["(\w+)"\]', read("refunds.py")))
    given = {"PHRONOMY_STORE", "PGPASSWORD", "OPENAI_API_KEY"}
    assert set(services()["worker"]["environment"]) == given
    assert set(services()["inbox"]["environment"]) == given | read_by_app
    config = set(manifests()["ConfigMap refund-desk"]["data"])
    told = set(re.findall(r"\b[A-Z]+_?[A-Z_]+\b", read("kubernetes.yaml").partition("apiVersion")[0]))
    assert config | {"OPENAI_API_KEY", "OIDC_CLIENT_SECRET", "PGPASSWORD"} == given | read_by_app
    assert {"OPENAI_API_KEY", "OIDC_CLIENT_SECRET", "PGPASSWORD"} <= told


def test_no_file_has_a_secret_and_no_process_is_root() -> None:
    for file in FILES.iterdir():
        if file.is_file():
            assert not re.search(r"(?i)(password|secret|key)\"?[:=] *[\"']?[a-z0-9+/]{6,}", file.read_text()), file.name
    assert instructions("USER") == ["10001"]
    assert all(
        each["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"]
        for each in (*manifests().values(), job())
        if each["kind"] in ("Deployment", "Job")
    )
    ignored = read(".dockerignore").splitlines()
    assert "*" in ignored and {each for each in ignored if each.startswith("!")} == {
        "!refunds.py",
        "!requirements.txt",
        "!wheels/*.whl",
    }


def test_the_wheel_that_is_installed_is_of_this_version() -> None:
    assert f"\n./wheels/phronomy-{phronomy.__version__}-py3-none-any.whl[inbox,postgres]\n" in read("requirements.txt")


# The processes of the compose file


def clerk(body: dict[str, Any]) -> Any:
    """The model: it asks for the refund, and says what came of it."""
    last = body["messages"][-1]
    return call("refund", {"order_id": 1042, "amount": 49.9}) if last["role"] == "user" else f"So: {last['content']}"


class Composed:
    """The services of the compose file as processes of this machine, on ports that are free here."""

    def __init__(self, folder: Path, database: Any, model: ChatServer, ports: dict[str, str]) -> None:
        self.ports = ports
        self.folder = folder
        self._database = database
        self._model = model
        self.services: dict[str, Any] = {
            name: {key: self.here(service.get(key)) for key in ("command", "environment", "healthcheck")}
            for name, service in services().items()
        }
        copied = [line.split()[0] for line in instructions("COPY") if not line.startswith("--from")]
        assert copied == ["refunds.py"]
        (folder / "refunds.py").write_text(read("refunds.py"))

    def here(self, said: Any) -> Any:
        """The text of a file, with the ports that are free here."""
        return json.loads(re.sub(r"\b(8080|8484)\b", lambda found: self.ports[found[1]], json.dumps(said)))

    def environ(self, name: str) -> dict[str, str]:
        """The environment of a service. The database is behind a socket here, and the model is a server of the test."""
        said = self.services[name]["environment"]
        assert said["PHRONOMY_STORE"] == "postgresql://desk@database:5432/desk"
        return {
            **os.environ,
            **said,
            "PHRONOMY_STORE": "postgresql://desk@/desk",
            "PGHOST": str(self._database.data),
            "OPENAI_BASE_URL": self._model.base_url,
            "PHRONOMY_MODEL_BACKEND": "chat_completions",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def start(self, name: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "phronomy", *self.services[name]["command"]],
            cwd=self.folder,
            env=self.environ(name),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str, *command: str) -> str:
        """The output of a command in a container of the service, as of `docker compose run --rm`."""
        line = [sys.executable, "-m", "phronomy", *command]
        done = subprocess.run(
            line, cwd=self.folder, env=self.environ(name), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def is_well(self, name: str) -> bool:
        """The verdict of the health check of a service."""
        kind, program, *arguments = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        if name == "database":  # it listens at no address here
            arguments = [each.replace("127.0.0.1", str(self._database.data)) for each in arguments]
        found = {"python": sys.executable, "pg_isready": str(self._database.programs / "pg_isready")}[program]
        line = [found, *arguments]
        done = subprocess.run(line, env=self.environ("worker"), capture_output=True, timeout=PATIENCE, check=False)
        return done.returncode == 0

    def probed(self, part: str, name: str) -> int:
        """The answer of the process to the probe of Kubernetes."""
        http = container(part)[name]["httpGet"]
        (port,) = (each["containerPort"] for each in container(part)["ports"] if each["name"] == http["port"])
        headers = {each["name"]: self.here(each["value"]) for each in http.get("httpHeaders", [])}
        url = f"http://127.0.0.1:{self.ports[str(port)]}{http['path']}"
        # A probe asks for the address of the pod, unless it says otherwise.
        return httpx2.get(url, headers={"Host": "10.1.2.3", **headers}, trust_env=False, timeout=PATIENCE).status_code


@contextmanager
def database_of(server: Any) -> Iterator[None]:
    """The database that the compose file makes: for `desk`, who has to say the password."""
    desk = services()["database"]["environment"]
    role, name = Identifier(desk["POSTGRES_USER"]), Identifier(desk["POSTGRES_DB"])
    rules = server.data / "pg_hba.conf"
    before = rules.read_text()
    with psycopg.connect(server.url, autocommit=True) as connection:
        password = Literal(desk["POSTGRES_PASSWORD"])
        connection.execute(SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, password))
        connection.execute(SQL("CREATE DATABASE {} OWNER {}").format(name, role))
        rules.write_text(f"local desk desk scram-sha-256\n{before}")
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            rules.write_text(before)
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(name))
            connection.execute(SQL("DROP ROLE {}").format(role))


@pytest.fixture
def composed(tmp_path: Path, own_postgres: Any) -> Iterator[Composed]:
    with ExitStack() as stack:
        stack.enter_context(database_of(own_postgres))
        model = stack.enter_context(ChatServer(clerk))
        ports = {name: str(stack.enter_context(HeldPort()).number) for name in ("8080", "8484")}
        yield Composed(tmp_path, own_postgres, model, ports)


def test_what_the_compose_file_says_asks_approves_and_pays(composed: Composed) -> None:
    assert composed.is_well("database")
    assert not composed.is_well("worker") and not composed.is_well("inbox"), "nobody is there yet"
    with ExitStack() as stack:
        running = {name: stack.enter_context(composed.start(name)) for name in ("worker", "inbox")}
        for each in running.values():
            stack.callback(each.kill)
        until(lambda: composed.is_well("worker") and composed.is_well("inbox"))
        for part in running:
            assert composed.probed(part, "readinessProbe") == composed.probed(part, "livenessProbe") == 200

        url = f"http://127.0.0.1:{composed.ports['8484']}"
        to_start = composed.run("worker", "token", "issue", "shop", "--as", "shop", "--scope", "start")
        issued = ("--as", "rita", "--role", "finance", "--human", "--scope", "read", "--scope", "decide")
        to_decide = composed.run("worker", "token", "issue", "rita", *issued)
        with InboxClient(url, secret(to_start)) as shop, InboxClient(url, secret(to_decide)) as rita:
            run = shop.start("refund desk", "Please refund order 1042")
            (row,) = until(lambda: [*rita.requests(mine=True)])
            assert (row.tool.name, row.run_id) == ("refund", run.run_id)
            assert row.id in composed.run("worker", *container_of(job())["args"]), (
                "it waits, and the new image may go on"
            )
            rita.approve(row)
            until(lambda: rita.run(run.run_id).status == "completed")
            assert rita.run(run.run_id).output == "So: 49.90 euros for order 1042 are on their way"

        for name, process in running.items():
            limit = seconds(services()[name]["stop_grace_period"])
            process.send_signal(signal.SIGTERM)
            said, complaints = process.communicate(timeout=limit)
            assert process.returncode == 0, complaints
            assert "Stopped." in said and "Traceback" not in said + complaints
            assert not composed.is_well(name)
            if name == "worker":
                assert "Runs carried out: 1; tries that failed: 0" in said


def secret(printed: str) -> str:
    """The token in what `phronomy token issue` prints."""
    found = re.search(r"phr_[\w-]+", printed)
    assert found is not None
    return found[0]
