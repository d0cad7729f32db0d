package discord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/disgoorg/disgo/discord"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// interaction is what is read of INTERACTION_CREATE.
type interaction struct {
	ID      string                  `json:"id"`
	Type    discord.InteractionType `json:"type"`
	Token   string                  `json:"token"`
	Guild   string                  `json:"guild_id"`
	Channel string                  `json:"channel_id"`
	Locale  string                  `json:"locale"`
	Member  *member                 `json:"member"`
	User    *user                   `json:"user"`
	Message *message                `json:"message"`
	Data    struct {
		// Type is that of a command, Target the message that it is used on.
		Type     discord.ApplicationCommandType `json:"type"`
		Target   string                         `json:"target_id"`
		Name     string                         `json:"name"`
		Options  []filled                       `json:"options"`
		CustomID string                         `json:"custom_id"`
		Values   []string                       `json:"values"`
		// Components are those of a form.
		Components []part `json:"components"`
		Resolved   struct {
			Attachments map[string]file   `json:"attachments"`
			Messages    map[string]spoken `json:"messages"`
		} `json:"resolved"`
	} `json:"data"`
}

// filled is an argument as its user has filled it in.
type filled struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
	// Focused means that it is being filled in.
	Focused bool `json:"focused"`
}

type member struct {
	User  *user    `json:"user"`
	Roles []string `json:"roles"`
}

type user struct {
	ID       string `json:"id"`
	Username string `json:"username"`
	Name     string `json:"global_name"`
	Bot      bool   `json:"bot"`
}

type file struct {
	Name string `json:"filename"`
	Type string `json:"content_type"`
	Size int64  `json:"size"`
	URL  string `json:"url"`
}

func (f file) file() platform.File {
	kind, _, _ := strings.Cut(f.Type, ";")
	return platform.File{ID: f.URL, Name: f.Name, Type: kind, Size: f.Size}
}

func (u user) user(language string) platform.User {
	name := u.Name
	name = cmp.Or(name, u.Username)
	return platform.User{ID: u.ID, Name: name, Language: language}
}

// author is who has done it.
func (in *interaction) author() *user {
	if in.Member != nil && in.Member.User != nil {
		return in.Member.User
	}
	return in.User
}

// readInteraction reads an interaction; false for one that is neither a command, nor an
// argument of one that is filled in, nor a button or a form, or not sound.
func readInteraction(raw json.RawMessage) (*interaction, bool) {
	var in interaction
	if json.Unmarshal(raw, &in) != nil || !in.sound() {
		return nil, false
	}
	switch in.Type {
	case discord.InteractionTypeApplicationCommand, discord.InteractionTypeAutocomplete, discord.InteractionTypeComponent,
		discord.InteractionTypeModalSubmit:
		return &in, true
	case discord.InteractionTypePing:
	}
	return nil, false
}

// sound reports whether everything is there that the bridge needs, in the form in which
// it becomes part of a path.
func (in *interaction) sound() bool {
	by := in.author()
	if !isID(in.ID) || !isToken(in.Token) || !isID(in.Channel) || in.Guild != "" && !isID(in.Guild) || by == nil || !isID(by.ID) {
		return false
	}
	switch {
	case in.Message != nil:
		return isID(in.Message.ID)
	case in.Type == discord.InteractionTypeApplicationCommand && in.Data.Type == discord.ApplicationCommandTypeMessage:
		return isID(in.Data.Target)
	}
	return in.Type != discord.InteractionTypeComponent
}

// welcome reports whether the bot listens to somebody there.
func (d *receiver) welcome(guild string, m *member) bool {
	switch {
	case guild == "":
		return d.o.Direct
	case len(d.o.Guilds) > 0 && !slices.Contains(d.o.Guilds, guild):
		return false
	case len(d.o.Roles) == 0:
		return true
	}
	return m != nil && slices.ContainsFunc(m.Roles, func(role string) bool { return slices.Contains(d.o.Roles, role) })
}

// ackPatience is how long Discord waits for the first answer to an interaction, less
// what the way there may take.
const ackPatience = 2700 * time.Millisecond

// interacted answers an interaction at once and returns what waits for that. It returns
// nil for one that is no event.
func (d *receiver) interacted(ctx context.Context, raw json.RawMessage) func(context.Context) (platform.Event, bool) {
	in, ok := readInteraction(raw)
	if !ok {
		d.o.Logger.Warn("skipping an interaction that cannot be read")
		return nil
	}
	ctx = context.WithoutCancel(ctx) // the connection may end meanwhile
	if in.Type == discord.InteractionTypeAutocomplete {
		d.complete(ctx, in)
		return nil
	}
	if !d.welcome(in.Guild, in.Member) {
		go d.turnAway(ctx, in)
		return nil
	}
	type outcome struct {
		at   string
		form bool
	}
	done := make(chan outcome, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, ackPatience)
		defer cancel()
		if d.opens(ctx, in) {
			done <- outcome{form: true}
			return
		}
		done <- outcome{at: d.acknowledge(ctx, in)}
	}()
	return func(ctx context.Context) (platform.Event, bool) {
		select {
		case is := <-done:
			return d.event(in, is.at), !is.form // what is filled in is the event
		case <-ctx.Done():
			return platform.Event{}, false
		}
	}
}

// turnAway tells somebody that the bot does not listen to them, and nobody else.
func (d *receiver) turnAway(ctx context.Context, in *interaction) {
	ctx, cancel := context.WithTimeout(ctx, ackPatience)
	defer cancel()
	err := d.respond(ctx, in, discord.InteractionResponseTypeCreateMessage, map[string]any{
		"content": plain(d.o.Say(in.Locale, "not_here")), "flags": discord.MessageFlagEphemeral, "allowed_mentions": nobody(),
	}, nil)
	if err != nil {
		d.o.Logger.Debug("cannot turn somebody away", "error", err)
	}
}

// respond makes the first answer to an interaction.
func (d *receiver) respond(ctx context.Context, in *interaction, kind discord.InteractionResponseType, data any, into any) error {
	body := map[string]any{"type": kind}
	if data != nil {
		body["data"] = data
	}
	return d.rest.do(ctx, call{
		method: http.MethodPost, path: "/interactions/" + in.ID + "/" + in.Token + "/callback?with_response=true", open: true, body: body,
	}, into)
}

// acknowledge defers the answer to an interaction and returns the id of the message
// that will hold it; "" if there is none.
func (d *receiver) acknowledge(ctx context.Context, in *interaction) string {
	if in.Message != nil {
		if in.Message.Flags&int(discord.MessageFlagEphemeral) != 0 {
			// Only this press can change the message.
			d.keep(ctx, in.Message.ID, answer{Token: in.Token, Private: true})
		}
		if err := d.defers(ctx, in, discord.InteractionResponseTypeDeferredUpdateMessage, nil, nil); err != nil {
			d.o.Logger.Debug("cannot confirm that a button was pressed", "error", err)
		}
		return in.Message.ID
	}
	// A form that a command has opened is no message that could be changed.
	c := d.used(in)
	private := in.Type == discord.InteractionTypeModalSubmit || c != nil && c.Private
	var data any
	if private {
		data = map[string]any{"flags": discord.MessageFlagEphemeral}
	}
	var told struct {
		Resource struct {
			Message message `json:"message"`
		} `json:"resource"`
	}
	err := d.defers(ctx, in, discord.InteractionResponseTypeDeferredCreateMessage, data, &told)
	at := told.Resource.Message.ID
	if err != nil || !isID(at) {
		at = d.find(ctx, in)
	}
	if at == "" {
		d.o.Logger.Warn("a command could not be confirmed in time", "error", err)
		return ""
	}
	d.keep(ctx, at, answer{Token: in.Token, Private: private, Waiting: true})
	return at
}

func (d *receiver) keep(ctx context.Context, at string, a answer) {
	if err := d.answers.put(ctx, at, a); err != nil {
		d.o.Logger.Debug("a restart would forget an answer", "error", err)
	}
}

// defers defers an answer, twice if the first attempt fails: there is no time for more.
// An attempt that got no answer may have worked.
func (d *receiver) defers(ctx context.Context, in *interaction, kind discord.InteractionResponseType, data, into any) (err error) {
	for try := range 2 {
		once, cancel := ctx, context.CancelFunc(func() {})
		if try == 0 {
			once, cancel = context.WithTimeout(ctx, ackPatience/2)
		}
		err = d.respond(once, in, kind, data, into)
		cancel()
		if err == nil || platform.Permanent(err) {
			return err
		}
	}
	return err
}

// findPatience bounds the search for the answer to an interaction; later events wait for it.
const findPatience = 10 * time.Second

// find asks which message answers an interaction that was deferred before: the answer
// to that may have been lost, or the bridge was killed after it. It asks again if that
// fails: a message that is not found says for ever that the bot thinks.
func (d *receiver) find(ctx context.Context, in *interaction) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findPatience)
	defer cancel()
	var m message
	err := retry.New(200*time.Millisecond, time.Second).Do(ctx, func(ctx context.Context) error {
		once, cancel := context.WithTimeout(ctx, ackPatience)
		defer cancel()
		me, err := d.whoami(once)
		if err != nil {
			return err
		}
		return d.original(once, http.MethodGet, me, in.Token, nil, nil, &m)
	}, func(err error) bool { return !platform.Permanent(err) && !errors.Is(err, ErrToken) })
	if err != nil || !isID(m.ID) {
		return ""
	}
	return m.ID
}

// event is an interaction as an event; at is the message that holds the answer.
func (d *receiver) event(in *interaction, at string) platform.Event {
	e := platform.Event{
		ID: in.ID, Platform: Name, Kind: platform.Said, At: time.Now(),
		Chat: platform.Chat{ID: in.Channel, Group: in.Guild != ""}, User: in.author().user(in.Locale),
	}
	if in.Type == discord.InteractionTypeComponent || in.Type == discord.InteractionTypeModalSubmit {
		if in.Type == discord.InteractionTypeModalSubmit {
			e.Filled = filledIn(in.Data.Components)
		}
		e.Kind, e.Press, e.Data, e.Message.ID = platform.Pressed, press{in.ID, in.Token}.String(), in.Data.CustomID, at
		if strings.HasPrefix(e.Data, menuID) && len(in.Data.Values) > 0 {
			e.Data = in.Data.Values[0]
		}
		return e
	}
	if c := d.used(in); c != nil && c.OnMessage {
		e.Message = in.onMessage(c)
	} else {
		e.Message = d.written(in)
	}
	e.Message.ID = ofCommand + in.ID
	if at != "" {
		e.Message.ID = ofAnswer + at
	}
	return e
}

// written writes a command with its arguments as people write it in a message.
func (d *receiver) written(in *interaction) (m platform.Message) {
	words, flags := []string{"/" + in.Data.Name}, []string(nil)
	var arguments []platform.Argument
	if c := d.used(in); c != nil {
		arguments = c.Arguments
	}
	for _, a := range arguments {
		at := slices.IndexFunc(in.Data.Options, func(f filled) bool { return f.Name == a.Name })
		if at < 0 {
			continue
		}
		value, err := in.Data.Options[at].text()
		switch {
		case err != nil:
		case a.Kind == platform.Picture:
			if f, ok := in.Data.Resolved.Attachments[value]; ok {
				m.Files = append(m.Files, f.file())
			}
		case a.Kind == platform.Switch && value != "true":
		case a.Kind == platform.Switch && a.Flag == "":
			words = append(words, a.Name)
		case a.Kind == platform.Switch:
			flags = append(flags, a.Flag)
		case a.Flag == "":
			words = append(words, value)
		case strings.ContainsAny(value, " \t\n") && !strings.Contains(value, `"`):
			flags = append(flags, a.Flag, `"`+value+`"`)
		default:
			flags = append(flags, a.Flag, value)
		}
	}
	m.Text = strings.Join(append(words, flags...), " ")
	return m
}

// text returns a value as it is written.
func (f filled) text() (string, error) {
	var value any
	decoder := json.NewDecoder(strings.NewReader(string(f.Value)))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return "", err
	}
	switch v := value.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", errors.New("a value of no known kind")
}
