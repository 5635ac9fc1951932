"""Answers as JSON and as pictures. The functions run in Starlette's pool of threads, uploads and questions aside."""

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from mjp.app import views
from mjp.app.jobs import Job, Jobs
from mjp.app.leak import as_png, as_tensor
from mjp.app.models import Models
from mjp.app.parameters import read_draws, read_jigsaw, read_question
from mjp.app.pictures import MAX_BYTES, Uploads
from mjp.common.errors import InputError
from mjp.pictures.thumbnails import as_jpeg

SECRET = {"Cache-Control": "no-store"}  # pictures of a person stay out of the browser's cache on disk
MAX_QUESTION = 10_000  # bytes


class Api:
    def __init__(self, models: Models, uploads: Uploads, jobs: Jobs) -> None:
        self.models = models
        self.uploads = uploads
        self.jobs = jobs

    async def upload(self, http: Request) -> Response:
        name = await run_in_threadpool(self.uploads.add, await _body(http, MAX_BYTES))
        return _json({"picture": name}, 201)

    def picture(self, http: Request) -> Response:
        return _jpeg(as_jpeg(self.uploads.find(http.path_params["name"]).square))

    def jigsaw_picture(self, http: Request) -> Response:
        return _jpeg(views.jigsaw_picture(read_jigsaw(http.query_params), self.models, self.uploads))

    def jigsaw(self, http: Request) -> Response:
        return _json(views.jigsaw_answers(read_jigsaw(http.query_params), self.models, self.uploads))

    def consistency(self, http: Request) -> Response:
        jigsaw, draws = read_jigsaw(http.query_params), read_draws(http.query_params)
        return _json(views.consistency(jigsaw, self.models, self.uploads, *draws))

    async def leak(self, http: Request) -> Response:
        body = await _body(http, MAX_QUESTION)
        job = self.jobs.submit(await run_in_threadpool(read_question, body, self.models, self.uploads))
        return _json({"job": job.name}, 202)

    def job(self, http: Request) -> Response:
        job = self.jobs.watch(http.path_params["name"])
        return _json(_progress(job) | {"ahead": self.jobs.ahead(job)})

    def cancel(self, http: Request) -> Response:
        job = self.jobs.find(http.path_params["name"])
        self.jobs.cancel(job)
        return _json(_progress(job))

    def attacked_picture(self, http: Request) -> Response:
        """The picture as the network takes it: reconstructions are compared with this one."""
        question = self.jobs.find(http.path_params["name"]).question
        return _png(as_png(as_tensor(question.pixels)))

    def reconstruction(self, http: Request) -> Response:
        messages = self.jobs.find(http.path_params["name"]).messages
        number = http.path_params["number"]
        content = messages[number].get("png") if number < len(messages) else None
        if content is None:
            return PlainTextResponse("Not found.\n", 404)
        return _png(content)


def _progress(job: Job) -> dict[str, Any]:
    """What a page needs to show a run; pictures by their addresses."""
    findings = [
        {key: value for key, value in message.items() if key != "png"}
        | ({"picture": f"/api/jobs/{job.name}/{number}.png"} if message.get("png") else {})
        for number, message in enumerate(list(job.messages))
    ]
    attacked = sum("attack" in message and not message["is_guess"] for message in findings)
    question = job.question
    return {
        **{"state": job.state, "error": job.error, "seconds": round(job.seconds, 1), "done": attacked},
        **{"defences": question.defences, "attacks": question.attacks, "command": question.command},
        **{"picture": f"/api/jobs/{job.name}/picture.png", "size": question.pixels.shape[1:], "findings": findings},
    }


async def _body(http: Request, limit: int) -> bytes:
    """The body, refused as soon as it is longer than the limit."""
    parts: list[bytes] = []
    size = 0
    async for part in http.stream():
        size += len(part)
        if size > limit:
            raise InputError(f"more than {limit / 1e6:g} MB were sent: choose a smaller file")
        parts.append(part)
    return b"".join(parts)


def _json(content: Any, status: int = 200) -> Response:
    return JSONResponse(content, status, headers=SECRET)


def _png(content: bytes) -> Response:
    return Response(content, media_type="image/png", headers=SECRET)


def _jpeg(content: bytes) -> Response:
    return Response(content, media_type="image/jpeg", headers=SECRET)
