"""A program that speaks llama-server's protocol, for tests of what measures it.

It writes tokens at a fixed speed, for as many users at once as it has slots.
"""

import sys
from pathlib import Path

_PROGRAM = """#!{python}
import argparse, json, os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser(allow_abbrev=False)
for name in ("--model", "--host", "--spec-type", "--spec-draft-model"):
    parser.add_argument(name)
for name in ("--port", "--parallel", "--ctx-size", "--threads", "--threads-batch", "--cache-ram",
             "--n-gpu-layers", "--spec-draft-n-max", "--spec-draft-ngl", "--spec-draft-threads",
             "--spec-draft-threads-batch"):
    parser.add_argument(name, type=int)
parser.add_argument("--no-repack", action="store_true")
options = parser.parse_args()
record = {{"argv": sys.argv[1:], "pid": os.getpid(), "key": os.environ.get("LLAMA_API_KEY")}}
with open({log!r}, "a") as file:
    print(json.dumps(record), file=file)
if {fails!r} in ("start", options.spec_type):
    sys.exit("error: unknown value for --spec-type")
ready, slots = time.monotonic() + 0.2, threading.Semaphore(options.parallel)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        pass

    def do_GET(self):
        status = 200 if time.monotonic() > ready else 503
        body = json.dumps({{"status": "ok"}}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open({log!r}, "a") as file:
            print(json.dumps({{"body": body}}), file=file)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        with slots:
            for number in range(body["max_tokens"]):
                time.sleep({seconds!r})
                if {fails!r} == "text" and number == 3:
                    os._exit(3)
                self.say({{"choices": [{{"text": "x"}}]}})
        count = body["max_tokens"]
        timings = {{"predicted_n": count}}
        if options.spec_type != "none":
            timings |= {{"draft_n": 2 * count, "draft_n_accepted": count}}
        self.say({{"choices": [{{"text": ""}}], "timings": timings}})
        self.wfile.write(b"data: [DONE]\\n\\n")

    def say(self, event):
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\\n\\n")
        self.wfile.flush()


ThreadingHTTPServer((options.host, options.port), Handler).serve_forever()
"""


def write_llama_server(folder: Path, *, fails: str = "", seconds: float = 0.002) -> Path:
    """Write the program; it appends what it was asked to `FOLDER/log`, a JSON object per line.

    fails: "start", "text", or the draft type that it does not know. seconds: per token.
    """
    program = folder / "llama-server"
    text = _PROGRAM.format(
        python=sys.executable, log=str(folder / "log"), fails=fails, seconds=seconds
    )
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return program
