package hub_test

import "github.com/comfyhub/comfyhub/internal/sim/replay"

const (
	older = "0.3.64"
	newer = "0.33.0"
)

// differences are the only ones that the replay of the recordings may find.
var differences = []difference{
	{
		"`/experiment/models` lists the model folders of all instances one after another.",
		"A prompt can use a model that any instance has.",
		[]place{in("system", "new-routes").behind(3).under("/experiment/models")},
	},
	{
		"Several prompts of one client run at once, and all are listed as running. One ComfyUI runs one; the others are pending. Prompts end, and their files are numbered, in the order in which they finish.",
		"This is what the hub is for. Each prompt's own messages are as recorded, and one prompt's messages follow another's.",
		[]place{
			in(overlapping...).behind(3).under("/queue"),
			in(overlapping...).behind(3).under("/history"),
			in("jobs", "jobs-cancel", "jobs-cancel-many", "jobs-odd", "queue-shape").behind(3).under("/jobs"),
			in("jobs-cancel").behind(3).at("detail of b").its(replay.Status), // it ran, and has an entry
			in("prompt-id-duplicate", "jobs-odd").behind(3).at("socket c"),
		},
	},
	{
		"When prompts end in a different order than they were posted, the next prompt's number skips some.",
		"It must be above every number in the history: ComfyUI's older web UI only looks for higher numbers.",
		[]place{in(overlapping...).behind(3).under("/prompt").lines(`^ *number: \d+$`)},
	},
	{
		"A client that reconnects gets all messages, from `execution_start` on, of each prompt that it has not received completely, even if that prompt ended while the client was away (for up to 60 s by default). ComfyUI sends one `executing` and forgets the rest.",
		"A client never misses an end.",
		[]place{
			in("ws-reconnect").at("socket two, without flags"),
			in("ws-reconnect").at("socket three, with flags"),
			in("ws-reconnect-idle").at("socket two"),
		},
	},
	{
		"If two sockets have the same client id, the newer one gets everything, even after the older one has closed. ComfyUI then sends it nothing more.",
		"A tab that is opened twice, or reconnects before the old connection is gone, must still get its messages.",
		[]place{
			in("ws-reconnect").at("socket four, while three is open"),
			in("ws-same-client-id").at("socket new"),
		},
	},
	{
		"Any non-empty string is accepted as `prompt_id`, kept, and shown. Anything else is replaced with a new UUID. ComfyUI 0.33 accepts only UUIDs; older versions use the text of any value.",
		"Clients of all versions work the same way. Instances see only UUIDs.",
		[]place{
			in("prompt-id").under("/prompt").since(newer).whole(),
			in("prompt-id").under("/prompt").since(older),
			in("prompt-id").under("/history").since(newer),
			in("prompt-id").at("socket c").since(older),
			in("validation-new").at("prompt_id bad and prompt bad").its(replay.Body),
		},
	},
	{
		"A prompt with the same id and number as a waiting one is accepted with 200. ComfyUI answers 500 and runs it anyway.",
		"The 500 is a side effect of how ComfyUI's heap compares prompts.",
		[]place{in("prompt-id-duplicate").at("id2 with number 7 again").whole()},
	},
	{
		"If two waiting prompts have the same id, a delete removes the newer one. ComfyUI removes the first in its heap.",
		"To the hub, an id means its newest job.",
		[]place{in("prompt-id-duplicate").at("queue after it"), in("prompt-id-duplicate").at("history holds one entry")},
	},
	{
		"`queue_pending` is in execution order. Prompts with the same number run in the order in which they arrived, and NaN comes last. ComfyUI lists its heap and compares ids.",
		"The order of a heap tells a client nothing.",
		[]place{
			in("order-front-number").at("queue: list order is heap order, not run order"),
			in("order-front-number").at("history"),
		},
	},
	{
		"If `number` is NaN or Infinity, it is shown as 1e+308, also in the answer to the POST. ComfyUI shows it as it is, and its listing is then not valid JSON.",
		"One odd prompt must not break the listing for others.",
		[]place{
			in("jobs-odd").at("number nan").lines(`NaN|1e\+308`),
			in("jobs-odd").at("number inf").lines(`Infinity|1e\+308`),
			in("order-front-number").at("number NaN").lines(`NaN|1e\+308`),
			in("order-front-number").at("number inf").lines(`Infinity|1e\+308`),
			in("jobs-odd").at("list after: number nan").lines(`NaN|1e\+308`),
			in("jobs-odd").at("list after: number inf").lines(`Infinity|1e\+308`),
		},
	},
	{
		"`GET /api/jobs` lists every prompt, however odd its `extra_data`. ComfyUI answers 500 to everyone while such a prompt exists.",
		"As above: one odd prompt must not break the listing for others.",
		[]place{in("jobs-odd").under("/jobs").whole()},
	},
	{
		"`/api/jobs` works in front of old instances, too.",
		"The web UI may be newer than an instance.",
		[]place{in("routes").at("GET /api/jobs").since(older).whole()},
	},
	{
		"A waiting or running job in `GET /api/jobs/{id}` has `workflow`, whatever version the instances have.",
		"ComfyUI shows it since a version after 0.33, and the web UI may be newer than an instance.",
		[]place{
			in("jobs").since(newer).at("detail: run"),
			in("jobs").since(newer).at("detail: pend1"),
			in("jobs").since(newer).at("detail: pend2"),
			in("jobs-cancel").since(newer).at("detail right after it"),
			in("jobs-cancel").since(newer).at("detail while it still runs"),
		},
	},
	{
		"API keys in `extra_data` are never shown. ComfyUI before 0.3.68 shows them to everyone in `GET /queue`.",
		"They are secrets. The hub stores them encrypted and deletes them when the prompt ends.",
		[]place{in("queue").at("queue").since(older).lines("auth_token_comfy_org|api_key_comfy_org").behind(1)},
	},
	{
		"A class that ComfyUI replaces with a newer one (`/node_replacements`) is passed on as it was sent, and the instance replaces it. The queue and the history show the old name. A node without `_meta` does not cause a 500. An error that appears only after the replacement is told as `execution_error`.",
		"Instances replace different classes.",
		[]place{
			in("node-replacement").at("an old class without _meta: 500").whole(),
			in("node-replacement").at("reached by an output of another type: the error speaks of the new class (CONDITIONING)").whole(),
			in("node-replacement").under("/queue"),
			in("node-replacement").under("/history"),
			in("validation-new").at("an old class that is gone is rewritten: SDV_img2vid_Conditioning").whole(),
			in("validation-new").at("history"), // shows one more prompt
		},
	},
	{
		"`Sec-Fetch-Site: cross-site` is refused whatever version the instances have. ComfyUI does this since 0.19.",
		"A page of another site must not reach a hub on the user's machine.",
		[]place{in("host-origin").at("Sec-Fetch-Site cross-site without Origin").since(older).whole()},
	},
	{
		"`Origin` is compared with `Host` on every host. ComfyUI does this only on loopback.",
		"A page of another site could otherwise post prompts, clear the history, and read a socket with the browser's login for the hub.",
		[]place{
			in("host-origin").at("Host is a non-loopback address, Origin other").whole(),
			in("host-origin").at("Host unresolvable name, Origin other").whole(),
			in("fetch-site").at("Host not loopback, other Origin").whole(),
		},
	},
	{
		"A foreign `Origin` that is refused at a loopback `Host` is answered with the reason. ComfyUI sends an empty 403.",
		"A proxy that does not pass the `Host` header on makes every page look foreign, and nobody would know why.",
		[]place{
			in("host-origin").at("other Origin").its(replay.Headers, replay.Body),
			in("host-origin").at("other port").its(replay.Headers, replay.Body),
			in("host-origin").at("localhost vs 127.0.0.1").its(replay.Headers, replay.Body),
			in("host-origin").at("Host localhost, Origin other").its(replay.Headers, replay.Body),
			in("host-origin").at("Host [::1], Origin other").its(replay.Headers, replay.Body),
			in("host-origin").at("POST /prompt other Origin").its(replay.Headers, replay.Body),
			in("host-origin").at("OPTIONS preflight other origin").its(replay.Headers, replay.Body),
			in("host-origin").at("X-Forwarded-Host is not looked at").its(replay.Headers, replay.Body),
			in("fetch-site").at("same-origin, other Origin").its(replay.Headers, replay.Body),
			in("fetch-site").at("other Origin").its(replay.Headers, replay.Body),
			in("fetch-site").at("other port").its(replay.Headers, replay.Body),
		},
	},
	{
		"A socket opened by a page of a sibling subdomain or of another port (`Sec-Fetch-Site: same-site`) is refused.",
		"A browser lets any page read a socket.",
		[]place{in("fetch-site").at("socket ws same-site").its(replay.Status, replay.Frames, replay.Code)},
	},
	{
		"If CORS is on for one origin, pages of other origins cannot open sockets or change anything. ComfyUI lets all pages in.",
		"A browser lets any page read a socket and send a form. `cors *` lets all pages in.",
		[]place{in("variant-cors-compress").at("socket ws-other-origin").its(replay.Status, replay.Frames, replay.Code)},
	},
	{
		"A path that begins with two slashes, such as `//queue`, is 404. ComfyUI with aiohttp before 3.14 answers 403.",
		"Newer versions of aiohttp answer 404, too.",
		[]place{in("routes").at("GET //queue").whole()},
	},
	{
		"Every answer but the web UI's pages has `X-Content-Type-Options: nosniff` and a `Content-Security-Policy` with `sandbox`.",
		"Files of users and answers of custom nodes come from the hub's own address, and must not run there with the login of whoever opens them.",
		[]place{place{}.its(replay.Headers).lines(contained)},
	},
	{
		"Files of users are sent as ComfyUI 0.28 and later sends them, whatever version the instances have: with `nosniff`, and SVG, XML, HTML and the like as downloads. Before 0.28, ComfyUI showed an SVG with its scripts.",
		"A script in a user's file would act as whoever opens it. One old instance must not take this protection from the whole fleet.",
		[]place{
			in("view", "preview-image", "upload", "userdata").since(older).its(replay.Headers).
				lines("^(X-Content-Type-Options|Content-Disposition|Content-Type|Cache-Control|Vary): "),
		},
	},
	{
		"Listings carry `ETag` and `Cache-Control: no-cache`.",
		"Clients that ask after every `status` get 304 if nothing has changed.",
		[]place{place{}.its(replay.Headers).lines(`^(Etag: \.\.\.|Cache-Control: no-cache)$`)},
	},
	{
		"304 answers have no `Content-Type`.",
		"Go's HTTP server omits it, as RFC 9110 advises.",
		[]place{
			in("view").at("If-None-Match").its(replay.Headers).lines("^Content-Type: "),
			in("view").at("If-Modified-Since").its(replay.Headers).lines("^Content-Type: "),
		},
	},
	{
		"If a client closes its socket with 1001, the hub answers 1001. aiohttp answers 1000.",
		"The WebSocket library echoes the code.",
		[]place{in("ws-connect").at("socket clientid").its(replay.Code)},
	},
	{
		"Assets (`--enable-assets`; on by default in 0.38) are off, as in a ComfyUI with `--disable-assets`: their routes answer 503, and the answer to an upload names none. The ids that a server gives the files of its outputs are passed on.",
		"Each instance has its own database of assets.",
		[]place{
			in("variant-assets").under("/assets").whole(),
			in("variant-assets").under("/tags").whole(),
			in("variant-assets").at("view by hash").whole(),
			in("variant-assets").under("/features"),
			in("variant-assets").under("/upload/image"),
			in("variant-assets").under("/history"),
			in("variant-assets").under("/jobs"),
		},
	},
	{
		"The hub itself compresses only the files of the web UI's build.",
		"Caddy's `encode` compresses the rest. It is on in the Caddyfile that comes with the hub.",
		[]place{in("variant-cors-compress").its(replay.Headers).lines(`^(Content-Encoding: deflate|Etag: \.\.\.|Cache-Control: no-cache)$`)},
	},
	{
		"The text of a 413 for a multipart or userdata body names a different number of bytes.",
		"It is the number of bytes read when the limit was noticed.",
		[]place{in("large-body").its(replay.Body).lines("^Maximum request body size 104857600 exceeded, actual body size ")},
	},
	{
		"The slashes in the name of a user's file may be decoded: `/userdata/workflows/a.json` is `/userdata/workflows%2Fa.json`. ComfyUI answers 405 and 404.",
		"Some proxies decode them, and a workflow could not be saved behind them.",
		[]place{
			in("userdata").at("put with an unencoded slash").whole(),
			in("userdata").at("get with an unencoded slash").whole(),
			in("userdata").at("list dir=workflows"), // which has that file
			in("userdata").at("list dir=workflows&recurse=true"),
			in("userdata").at("list dir=workflows&full_info=true"),
			in("userdata").at("list dir=workflows&split=true"),
			in("userdata").at("list dir=.&recurse=true"),
			in("userdata").under("/v2/userdata"),
		},
	},
	{
		"Users are told apart by their login (tenants), not by the `comfy-user` header of `--multi-user`.",
		"The header does not authenticate anyone: any client can send it.",
		[]place{
			in("variant-multi-user").under("/users"),
			in("variant-multi-user").under("/settings").whole(),
			in("variant-multi-user").under("/userdata").whole(),
		},
	},
	{
		"Not caused by the hub: the machine, files left by earlier recordings, lists that the recorder did not keep, and how long runs took.",
		"These answers describe the machine that was recorded.",
		[]place{
			in("system", "new-routes").under("/system_stats"),
			in("system", "new-routes").under("/internal/files"),
			in("new-routes").under("/global_subgraphs"),
			in("jobs").under("/jobs?sort_by=execution_duration"),
		},
	},
}

// notPlayed lists the scenarios that cannot be played against a hub, with the reasons.
var notPlayed = map[string]string{
	"server-stop-sigint":  "a hub that stops keeps queue and history; see the tests of faults",
	"server-stop-sigkill": "as above",
	"server-stop-sigterm": "as above",
	"large-body":          "sends hundreds of megabytes; see the tests of bodies, and those of package intake",
	"stalled-client":      "a client that does not read delays nobody; see package stream",
}
