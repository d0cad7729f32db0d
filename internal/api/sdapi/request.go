package sdapi

import (
	"errors"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// request is what a client has asked for, without its pictures and texts.
type request struct {
	class string
	// id is the job's.
	id string
	// hidden means that the pictures are not sent (send_images is false).
	hidden bool
}

const (
	// idPrefix begins the ids of the jobs of this room, as the prompt_id of the other rooms.
	// A UUID follows, and the id of the task if the client has chosen one.
	idPrefix = "sdapi-"
	// maxTask bounds the id of a task, in bytes, so that the job's is none too long.
	maxTask = catalog.MaxID - len(idPrefix) - 36 - 1
)

// object is the body of a request. The error is an *invalid.
func object(v pyjson.Value) (*pyjson.Object, error) {
	o, ok := v.(*pyjson.Object)
	if !ok {
		return nil, &invalid{message: "value is not a valid dict", kind: "type_error.dict"}
	}
	return o, nil
}

// text reads a member that is a text or null.
func text(o *pyjson.Object, key string) (string, error) {
	v, _ := o.Get(key)
	switch v := v.(type) {
	case nil, pyjson.Null:
		return "", nil
	case pyjson.String:
		return string(v), nil
	}
	return "", &invalid{place: []any{key}, message: "str type expected", kind: "type_error.str"}
}

// readRequest reads the body of a request for a class, and returns the graph that does it.
// options are the tenant's own settings. All that the hub need not understand is left to the
// server. The error is an *invalid, or one whose text is for the client.
func readRequest(class string, v pyjson.Value, options *pyjson.Object) (request, *catalog.Graph, error) {
	asked := request{class: class}
	payload, err := object(v)
	if err != nil {
		return asked, nil, err
	}
	task, err := text(payload, "force_task_id")
	if err != nil {
		return asked, nil, err
	}
	if asked.id, err = idOf(task); err != nil {
		return asked, nil, err
	}
	extra := map[string]string{}
	var checkpoint string
	var loras []string
	if class == a1111.ClassTxt2Img || class == a1111.ClassImg2Img {
		if checkpoint, loras, err = needs(payload, options); err != nil {
			return asked, nil, err
		}
		// The pictures are results of the job, whether the client wants them sent or not.
		send, _ := payload.Get("send_images")
		asked.hidden = send == pyjson.Bool(false)
		payload.Delete("send_images")
		if options.Len() > 0 {
			extra[a1111.InputOptions] = string(pyjson.Marshal(options))
		}
	}
	graph, err := a1111.Graph(class, payload, checkpoint, loras)
	if err != nil {
		return asked, nil, err
	}
	for key, value := range extra {
		graph.Object(a1111.JobNode).Object("inputs").Set(key, pyjson.String(value))
	}
	whole, err := pyjson.Parse(pyjson.Marshal(pyjson.NewObject(pyjson.Member{Key: "prompt", Value: graph}))) // the graph is bytes from here on
	if err != nil {
		return asked, nil, &invalid{message: "nested too deeply", kind: "value_error"}
	}
	o, _ := whole.(*pyjson.Object)
	read, err := catalog.ReadObject(o, "prompt")
	if err != nil {
		return asked, nil, errors.New("the request cannot be read")
	}
	return asked, read.Graph, nil
}

// needs is what the server must have for a request: the checkpoint, and LoRAs.
func needs(payload, options *pyjson.Object) (checkpoint string, loras []string, err error) {
	settings, _ := payload.Get("override_settings")
	switch settings := settings.(type) {
	case nil, pyjson.Null:
	case *pyjson.Object:
		if _, err := text(settings, a1111.OptionCheckpoint); err != nil {
			return "", nil, &invalid{place: []any{"override_settings", a1111.OptionCheckpoint}, message: "str type expected", kind: "type_error.str"}
		}
	default:
		return "", nil, &invalid{place: []any{"override_settings"}, message: "value is not a valid dict", kind: "type_error.dict"}
	}
	checkpoint, loras = a1111.Needs(payload)
	if checkpoint == "" {
		checkpoint = options.String(a1111.OptionCheckpoint)
	}
	return checkpoint, loras, nil
}

// idOf is an id for a new job, given that of its task or "".
func idOf(task string) (string, error) {
	id := idPrefix + uuid.NewString()
	switch {
	case task == "":
		return id, nil
	case len(task) > maxTask:
		return "", &invalid{place: []any{"force_task_id"}, message: "the id is too long for the hub", kind: "value_error.any_str.max_length"}
	}
	return id + "-" + task, nil
}

// taskOf is the id of a task that the client has chosen, given the id of its job; "" if it has
// chosen none.
func taskOf(id string) string {
	if head := len(idPrefix) + 36 + 1; len(id) > head {
		return id[head:]
	}
	return ""
}
