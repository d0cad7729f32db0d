package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/config"
	"github.com/comfyhub/comfyhub/botbridge/internal/conversation"
	"github.com/comfyhub/comfyhub/botbridge/internal/discord"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// mebibyte is the unit of the limits on files, in bytes.
const mebibyte = 1 << 20

// discord makes the platform of that name.
func (b *Bridge) discord(c *config.Config, commands []*workflow.Command) (*discord.Discord, error) {
	token, err := c.Discord.Token.Read(c.Folder)
	if err != nil {
		return nil, err
	}
	return discord.New(discord.Options{
		Token: token, Server: c.Discord.Server, Guilds: c.Discord.Guilds, Roles: c.Discord.Roles, Direct: c.Discord.AdmitsDirect(),
		Upload: c.Discord.UploadMB * mebibyte, Download: c.Discord.DownloadMB * mebibyte,
		Commands: conversation.Declare(b.texts, commands, c.Enhance != nil), Memory: memory{b},
		// Nobody types before the bridge serves, and by then there is a conversation.
		Suggest: func(ctx context.Context, command, argument, typed string) []string {
			return b.talk.Suggest(ctx, command, argument, typed)
		},
		Form:   func(ctx context.Context, e platform.Event) *platform.Form { return b.talk.Form(ctx, e) },
		Say:    func(language, key string) string { return b.texts.Say(b.texts.Match(language), key, nil) },
		Logger: b.log.With("platform", discord.Name), HTTP: b.http,
	})
}

// memory is what Discord has to remember, in the state, which is opened later.
type memory struct{ b *Bridge }

// memoryKind is the kind of these values.
const memoryKind = "discord"

// Get implements discord.Memory.
func (m memory) Get(ctx context.Context, name string, into any) (bool, error) {
	err := m.b.store.Get(ctx, memoryKind, name, into)
	if errors.Is(err, state.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Put implements discord.Memory.
func (m memory) Put(ctx context.Context, name string, value any, keep time.Duration) error {
	return m.b.store.Put(ctx, memoryKind, name, value, keep)
}
