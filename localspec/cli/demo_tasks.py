"""What `localspec demo` decodes: prompts, and the temperature of each."""

from dataclasses import dataclass

from localspec.bench import Task, bundled_tasks
from localspec.engine.engine import Engine
from localspec.engine.prompt import Prompt
from localspec.errors import InvalidValueError
from localspec.utils.format import counted

# Questions that the bundled pair answers well: it edits scripts of a few lines.
_BACKUP = """\
```sh
# Create a gzipped archive of a directory
tar czf backup.tar.gz path/to/directory
# List the contents of the archive
tar tvf backup.tar.gz
# Copy the archive to a remote host
scp backup.tar.gz remote_host:path/to/directory
# Remove old files
rm backup.tar.gz
# Show how much disk space is used
df -h
```"""
_CONTAINERS = """\
```sh
# Stop a running container
docker stop container_name
# Remove a stopped container
docker rm container_name
# Pull an image from a registry
docker pull image
# Run a container in the background
docker run -d image
# List all running containers
docker ps
# Fetch the logs of a container
docker logs container_name
```"""
_STOP = "Make this script stop at the first error:"
_SUDO = "Put sudo in front of each command:"
_COPY = "Copy this:"


@dataclass(frozen=True, slots=True)
class DemoTask:
    """A prompt to decode. name: in the table. temperature: 0 is greedy."""

    name: str
    prompt: Task
    temperature: float

    @property
    def heading(self) -> str:
        """Return its name, its temperature and the first line of its prompt."""
        return f"{self.name} at temperature {self.temperature:g}: {self.question}"

    @property
    def question(self) -> str:
        """Return the first line of the prompt, or of a chat's last message, and how many follow."""
        content = self.prompt.content
        text = content if isinstance(content, str) else content[-1]["content"]
        first, *rest = text.split("\n")
        return f"{first} ... ({counted(len(rest), 'more line')})" if rest else first

    def prompt_for(self, engine: Engine) -> Prompt:
        """Return the prompt for this engine: a text as a question, if the model answers."""
        content = self.prompt.content
        if isinstance(content, str) and self.prompt.set == _OWN and engine.prefers_chat:
            return [{"role": "user", "content": content}]
        return self.prompt.prompt_for(engine)


_OWN = "prompt"


def demo_tasks(
    prompt: str | None, prompt_set: str | None, temperature: float | None
) -> list[DemoTask]:
    """Return the demo's own tasks, or the one that the user asks for.

    temperature: None is that of each task. Raises InvalidValueError for an unknown set, and for
    both a prompt and a set.
    """
    if prompt is not None and prompt_set is not None:
        raise InvalidValueError("both --prompt and --set are given; choose one")
    if prompt_set is not None:
        tasks = [DemoTask(prompt_set, bundled_tasks(prompt_set)[0], 0.0)]
    elif prompt is not None:
        tasks = [DemoTask(_OWN, Task(_OWN, 1, prompt), 0.0)]
    else:
        tasks = [
            DemoTask("edit", _question("edit", f"{_STOP}\n{_BACKUP}"), 0.0),
            DemoTask("code", _question("code", f"{_SUDO}\n{_CONTAINERS}"), 0.0),
            DemoTask("sampled", _question("sampled", f"{_COPY}\n{_BACKUP}"), 0.8),
        ]
    if temperature is None:
        return tasks
    return [DemoTask(each.name, each.prompt, temperature) for each in tasks]


def _question(name: str, text: str) -> Task:
    return Task(name, 1, ({"role": "user", "content": text},))
