package hub

import "github.com/comfyhub/comfyhub/internal/sim/replay"

const (
	older = "0.3.64"
	newer = "0.33.0"
)

// differences are the only ones that the replay of the recordings may find.
var differences = []difference{
	{
		"`/experiment/models` lists the model folders of all instances, one after the other.",
		"A model that any instance has can be used.",
		[]place{in("system", "new-routes").behind(3).under("/experiment/models")},
	},
	{
		"Several prompts of one client run at once; the hub lists them as running, where one ComfyUI lists one as running and the others as pending. They end, and are numbered in file names, in the order in which they finish.",
		"It is what the hub is for. Each prompt's own messages are the recorded ones, one prompt after the other.",
		[]place{
			in(overlapping...).behind(3).under("/queue"),
			in(overlapping...).behind(3).under("/history"),
			in("jobs", "jobs-cancel", "jobs-cancel-many", "jobs-odd", "queue-shape").behind(3).under("/jobs"),
			in("jobs-cancel").behind(3).at("detail of b").its(replay.Status), // it ran, and has an entry
			in("prompt-id-duplicate", "jobs-odd").behind(3).at("socket c"),
		},
	},
	{
		"After prompts have ended in another order than they were posted, the next prompt's number skips some.",
		"It is above all numbers that the history shows, since ComfyUI's older web UI looks for higher numbers only.",
		[]place{in(overlapping...).behind(3).under("/prompt").lines(`^ *number: \d+$`)},
	},
	{
		"A client that reconnects is sent the whole sequence of every prompt that it has not received whole, from `execution_start` on, also of one that ended while it was away (60 s by default). ComfyUI sends one `executing` and forgets the rest.",
		"No end is ever missed.",
		[]place{
			in("ws-reconnect").at("socket two, without flags"),
			in("ws-reconnect").at("socket three, with flags"),
			in("ws-reconnect-idle").at("socket two"),
		},
	},
	{
		"Of two sockets with one client id the newer one gets everything, also after the older one has closed. ComfyUI silences it then.",
		"A tab that is opened twice, or reconnects before the old connection is gone, must not go deaf.",
		[]place{
			in("ws-reconnect").at("socket four, while three is open"),
			in("ws-same-client-id").at("socket new"),
		},
	},
	{
		"Any string is accepted as `prompt_id`, kept and shown; what is no string, or empty, gets a new UUID. ComfyUI 0.33 refuses all but UUIDs, older ones take the text of any value.",
		"Clients of all versions work alike. Instances only ever see UUIDs.",
		[]place{
			in("prompt-id").under("/prompt").since(newer).whole(),
			in("prompt-id").under("/prompt").since(older),
			in("prompt-id").under("/history").since(newer),
			in("prompt-id").at("socket c").since(older),
			in("validation-new").at("prompt_id bad and prompt bad").its(replay.Body),
		},
	},
	{
		"A prompt with the same id and number as one that waits is accepted with 200. ComfyUI answers 500, and runs it all the same.",
		"The 500 is an accident of its heap.",
		[]place{in("prompt-id-duplicate").at("id2 with number 7 again").whole()},
	},
	{
		"When an id waits twice, a delete takes the newer one. ComfyUI takes the first in its heap.",
		"The hub knows an id by its newest job.",
		[]place{in("prompt-id-duplicate").at("queue after it"), in("prompt-id-duplicate").at("history holds one entry")},
	},
	{
		"`queue_pending` is in the order of execution; equal numbers run in the order of arrival, and NaN is the last. ComfyUI lists its heap and compares ids.",
		"A list that means something; nobody can rely on the other.",
		[]place{
			in("order-front-number").at("queue: list order is heap order, not run order"),
			in("order-front-number").at("history"),
		},
	},
	{
		"NaN and Infinity as `number` are shown as 1e+308, also in the answer to the POST. ComfyUI shows them as they are, and its listing is no JSON then.",
		"One odd prompt must not break a listing for others.",
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
		"`GET /api/jobs` lists every prompt, however odd its `extra_data`. ComfyUI answers 500 to everybody while such a prompt is there.",
		"As above.",
		[]place{in("jobs-odd").under("/jobs").whole()},
	},
	{
		"`/api/jobs` is there in front of old instances too.",
		"The web UI may be newer than an instance.",
		[]place{in("routes").at("GET /api/jobs").since(older).whole()},
	},
	{
		"API keys in `extra_data` are never shown. ComfyUI before 0.3.68 shows them to everybody in `GET /queue`.",
		"They are secrets. The hub keeps them encrypted and deletes them at the end.",
		[]place{in("queue").at("queue").since(older).lines("auth_token_comfy_org|api_key_comfy_org").behind(1)},
	},
	{
		"A class that a server would replace by a newer one (`/node_replacements`) is passed on as it was sent; the instance replaces it. Queue and history show the old name; a node without `_meta` is no 500; an error that shows only after the replacement comes as `execution_error`.",
		"Which classes are replaced differs from instance to instance.",
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
		"`Sec-Fetch-Site: cross-site` is refused whatever the version of the instances is; ComfyUI does so since 0.19.",
		"A page of another site must not reach a hub on the user's own machine.",
		[]place{in("host-origin").at("Sec-Fetch-Site cross-site without Origin").since(older).whole()},
	},
	{
		"`Origin` is compared with `Host` whatever the name of the host is; ComfyUI does so on loopback only.",
		"A page of another site would post prompts, clear the history and read a socket with the login that the browser has for the hub.",
		[]place{
			in("host-origin").at("Host is a non-loopback address, Origin other").whole(),
			in("host-origin").at("Host unresolvable name, Origin other").whole(),
			in("fetch-site").at("Host not loopback, other Origin").whole(),
		},
	},
	{
		"A socket that a page of a sibling subdomain or another port opens (`Sec-Fetch-Site: same-site`) is refused.",
		"As above: a browser lets any page read a socket.",
		[]place{in("fetch-site").at("socket ws same-site").its(replay.Status, replay.Frames, replay.Code)},
	},
	{
		"With CORS switched on for one origin, pages of others open no sockets and change nothing. ComfyUI lets everybody in.",
		"A browser lets any page read a socket, and sends a form without asking. `cors *` lets everybody in.",
		[]place{in("variant-cors-compress").at("socket ws-other-origin").its(replay.Status, replay.Frames, replay.Code)},
	},
	{
		"`//queue`, and whatever else begins with two slashes, is 404. ComfyUI with an aiohttp before 3.14 answers 403.",
		"It is what newer ones answer.",
		[]place{in("routes").at("GET //queue").whole()},
	},
	{
		"Answers of the hub have no `Content-Security-Policy`. The recorded server sent one because its API nodes were switched off.",
		"It belongs to the web UI's pages, which keep theirs.",
		[]place{place{}.its(replay.Headers).since(newer).lines("^Content-Security-Policy: ")},
	},
	{
		"Listings carry `ETag` and `Cache-Control: no-cache`.",
		"Clients that ask at every `status` get 304 for what has not changed.",
		[]place{place{}.its(replay.Headers).lines(`^(Etag: \.\.\.|Cache-Control: no-cache|Content-Security-Policy: .*)$`)},
	},
	{
		"304 answers have no `Content-Type`.",
		"Go's HTTP server leaves it out, as RFC 9110 advises.",
		[]place{
			in("view").at("If-None-Match").its(replay.Headers).lines("^(Content-Type|Content-Security-Policy): "),
			in("view").at("If-Modified-Since").its(replay.Headers).lines("^(Content-Type|Content-Security-Policy): "),
		},
	},
	{
		"A socket closed with 1001 is answered with 1001; aiohttp answers 1000.",
		"The WebSocket library echoes the code.",
		[]place{in("ws-connect").at("socket clientid").its(replay.Code)},
	},
	{
		"Assets (`--enable-assets`) are off: their routes answer 503, and nothing else names an asset, as in a ComfyUI without the flag.",
		"Assets are a database per instance.",
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
		"The hub itself compresses none of its answers but files of the web UI's build.",
		"`encode` of the web server in front (Caddy) does, and the Caddyfile that comes with the hub has it on.",
		[]place{in("variant-cors-compress").its(replay.Headers).lines(`^(Content-Encoding: deflate|Etag: \.\.\.|Cache-Control: no-cache)$`)},
	},
	{
		"The text of a 413 for a multipart or userdata body names another number of bytes.",
		"It is how much had been read when the limit was noticed.",
		[]place{in("large-body").its(replay.Body).lines("^Maximum request body size 104857600 exceeded, actual body size ")},
	},
	{
		"Users are separated by login (tenants), not by the header `comfy-user` of `--multi-user`.",
		"The header is no authentication: anybody can send it.",
		[]place{
			in("variant-multi-user").under("/users"),
			in("variant-multi-user").under("/settings").whole(),
			in("variant-multi-user").under("/userdata").whole(),
		},
	},
	{
		"Not the hub's doing: machine, files left by earlier recordings, lists that were not kept by the recorder, and how long runs took.",
		"These answers tell of the machine that was recorded.",
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
	"stalled-client":      "a client that does not read delays nobody; see package stream",
}
