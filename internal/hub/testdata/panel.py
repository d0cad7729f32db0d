import asyncio
from aiohttp import web
from server import PromptServer

routes = PromptServer.instance.routes


async def later(sid, after, everybody):
    await asyncio.sleep(after)
    PromptServer.instance.send_sync("simulated.panel", {"sid": sid, "text": "done"}, None if everybody else sid)
    if not everybody:
        PromptServer.instance.send_sync("progress", {"value": 1, "max": 1, "prompt_id": "x", "node": "1"}, sid)


async def named(request):
    body = await request.json() if request.can_read_body else {}
    q = request.rel_url.query
    sid = body.get("client_id") or q.get("client_id") or q.get("clientId") or request.match_info.get("sid")
    asyncio.create_task(later(sid, float(q.get("after", "0.05")), q.get("all") == "1"))
    return web.json_response({"sid": sid})

routes.get("/simulated/panel")(named)
routes.post("/simulated/panel")(named)
routes.get("/simulated/panel/{sid}")(named)

NODE_CLASS_MAPPINGS = {}
