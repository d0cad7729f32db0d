import { h } from './dom.js';

const words = {
  en: {
    fleet: 'Fleet', queue: 'Queue', results: 'Results', trends: 'Trends', faults: 'Faults',
    jobs: 'Jobs', took: 'Took', 'band.any': 'any priority class', normal: 'normal', log: 'What {x} wrote then', 'no.log': 'The instance is not connected, or has not kept its log from then.', ever: 'at any time', 'last.hour': 'last hour', 'last.day': 'last day', 'last.week': 'last week',
    'state.queued': 'waiting', 'state.running': 'running', 'state.done': 'done', 'state.failed': 'failed', 'state.cancelled': 'cancelled',
    'find.text': 'Id, error, user or instance', 'find.tenant': 'User', 'find.instance': 'Instance', looking: 'Looking…', 'found.all': '{n} found', 'found.more': '{n} found in the first {looked}; there may be more',
    'no.jobs.yet': 'No jobs yet', 'no.found': 'No job fits', 'no.found.help': 'Jobs that were cancelled while they waited, and the oldest that have ended, are not kept.', 'cancel.found': 'Cancel these…', 'again.found': 'Run these again…',
    'ask.runs': 'What runs on {n} of them begins again elsewhere.', 'ask.cancel.found': 'Cancel {n} jobs that run or wait? Those that came later stay.', 'ask.again.found': 'Run {n} jobs that have ended again?', 'did.cancel.found': '{n} jobs cancelled', 'did.again.found': '{n} jobs submitted again', 'failed.some': '{n} did not work, the first one because: {x}',
    'no.match.queue': 'This page holds the first jobs in line only.', 'search.all': 'Search in all jobs', 'page.of': 'All about this job', 'no.job': 'There is no such job', 'no.job.help': 'It may have been cancelled while it waited, or so long ago that it is not kept any more.',
    set: 'Set', 'did.priority': 'Priority changed', 'why.there': 'Why it went there', progress: 'Progress', began: 'Began', ended: 'Ended', waited: 'Waited', 'copy': 'Copy the id', 'did.copy': 'Copied', 'id.hub': "The hub's id", 'id.instance': "The instance's id", 'error.of': 'Error', 'failed.at': 'Failed at', messages: 'Messages', 'time.goes': 'Where the time goes', 'time.of': 'On average of {n} runs', saves: 'Saves {x}.', 'hint.hide': 'Do not show again', 'hint.open': 'Open', 'did.dismiss': 'Not shown any more', 'hint.hidden': 'Tips that you do not want to see: click one to see it again.', 'did.restore': 'Shown again', 'hint.reserve_models': 'reserve an instance', 'hint.fewer_steps': 'fewer steps', 'hint.needs_no_gpu': 'no GPU needed', 'hint.same_prompt': 'made before', 'hint.downloads': 'downloads', 'hint.unseen_preview': 'previews nobody opens', tip: 'Tip',
    'phase.downloading': 'downloading', 'phase.loading': 'loading models', 'phase.encoding': 'reading texts and pictures', 'phase.sampling': 'sampling', 'phase.decoding': 'decoding', 'phase.upscaling': 'upscaling', 'phase.saving': 'saving', 'phase.service': 'waiting for a service', 'phase.other': '', outputs: 'Outputs', graph: 'Graph', 'save.graph': 'Save the graph', away: 'No connection. Last update {x}',
    idle: 'idle', busy: 'busy', foreign: 'in use by others', draining: 'draining', sick: 'unhealthy', offline: 'offline',
    instances: 'Instances', running: 'Running', waiting: 'Waiting', own: 'yours', all: 'All', 'gpu.use': 'GPUs at work',
    search: 'Filter by name, GPU, model, user', 'search.jobs': 'Filter by id or user',
    instance: 'Instance', state: 'State', work: 'Work', model: 'Model', memory: 'VRAM', up: 'Uptime', job: 'Job', why: 'Why it waits', eta: 'Done in', place: 'Place', user: 'User', wait: 'Time', status: 'Status', actions: 'Actions',
    someone: 'a job of another user', node: 'node', preparing: 'preparing', 'not.loaded': 'none loaded', free: 'free', of: 'of',
    'panel.soon': 'Begins in a moment', 'panel.begins': 'Begins at', 'panel.ends': 'done at', 'panel.unknown': 'Nobody knows yet how long this takes', 'panel.none': 'None of your jobs is running or waiting.', 'panel.away': 'The hub does not answer. This page asks again.', 'panel.limits': 'Your limits', 'panel.open': 'Open the dashboard',
    'panel.limit.running': '{n} of {x} jobs at once', 'panel.limit.waiting': '{n} of {x} waiting jobs', 'panel.limit.gpu': '{n} of {x} GPU time in 24 hours', 'panel.limit.rate': '{x} prompts a minute at most',
    turn: 'waits for its turn', paused: 'paused', 'queue.paused': 'the queue is paused', 'you.paused': 'your jobs are paused by the operator',
    'webui.folder': 'The ComfyUI page comes from the folder', 'webui.instance': 'The ComfyUI page comes from', 'webui.nowhere': 'The ComfyUI page comes from nowhere now; it would come from', 'webui.none': 'Nothing serves ComfyUI’s page now: no instance that may do so is connected.',
    strangers: 'Redis and the storage belong to different hubs: nothing is deleted. `comfyhub check` says what to do.',
    'open.hub': 'Everybody who reaches this hub over the network may use it, and see and delete everything: it asks for neither a login nor a key. Its operator can change that.',
    'operators.only': 'This site is for operators, and you are not logged in as one. The Caddyfile names them: `operators NAME`, with a login at both sites. Everybody’s dashboard is at /hub/ of the hub’s own address, port 8188 by default.',
    'operators.at': 'Operators act at their own site:', 'operators.none': 'Operators act at a site of their own, which this hub does not have yet: `comfyhub_operators` in its Caddyfile.',
    connected: 'Live', lost: 'Reconnecting…', unreachable: 'The hub does not answer', theme: 'Colours', 'theme.auto': 'as the system', 'theme.light': 'light', 'theme.dark': 'dark', language: 'Language',
    close: 'Close', cancel: 'Cancel', pause: 'Pause', resume: 'Resume', front: 'To the front', end: 'To the end', moveup: 'Move up', movedown: 'Move down',
    drain: 'Drain', trust: 'Use again', restart: 'Restart', forget: 'Forget', 'pause.all': 'Pause the queue', 'resume.all': 'Resume the queue',
    started: 'Up since', 'did.cancel': 'Job cancelled', 'did.pause': 'Paused', 'did.resume': 'Resumed', 'did.move': 'Moved', 'did.drain': 'Draining: finishes its run and gets no other', 'did.restart': 'Restarting', 'did.forget': 'Forgotten', 'did.again': 'Submitted again',
    failed: 'That did not work', 'ask.cancel': 'Cancel this job?', 'ask.restart': 'Restart this instance? What runs there runs elsewhere.',
    'no.instances': 'No instance is connected yet', 'no.instances.help': 'On a GPU machine, start the agent beside ComfyUI, which it finds by itself:', 'no.instances.here': 'Start the agent on this machine, beside ComfyUI, which it finds by itself:', 'no.instances.key': 'The key is the one that the hub was started with.', 'no.instances.more': 'For other machines, start the hub with COMFYHUB_GOSSIP=0.0.0.0:7946 and COMFYHUB_GOSSIP_KEY.', 'no.instances.found': 'It looks for ComfyUI at the usual ports; --comfyui URL names another one.', 'no.instances.yours': 'Its operator connects them.', 'no.gossip': 'This hub takes no agents: name the instances in its Caddyfile.', 'no.jobs': 'Nothing waits', 'no.jobs.help': 'Point a ComfyUI client at this address, or submit a workflow:',
    'no.match': 'Nothing matches the filter', 'no.results': 'No results yet', 'no.results.help': 'Pictures of your jobs appear here as soon as they are done.', 'no.faults': 'Nothing has gone wrong within the last day', 'search.faults': 'Filter by reason, instance, user', 'no.trends': 'The first figures come after a few seconds of work',
    'more.waiting': 'and {n} more', reason: 'Reason', fault: 'Last error', version: 'Version', address: 'Address', agent: 'Agent', kind: 'Kind', reserved: 'Reserved for', elapsed: 'Runs for', preview: 'Preview', 'no.preview': 'No preview yet', priority: 'Priority', band: 'Priority class', attempts: 'Attempts', created: 'Submitted', why2: 'What speaks for and against each instance', load: 'Load of others', restarts: 'Restarts', 'restart.at': 'next one at {x}', 'restart.failed': 'the last one failed: {x}', disk: 'Disk', 'disk.low': '{x} GB left on its disk', 'others.hold': 'other programs hold {x} GB', 'others.use': 'other programs use {x} %', 'last.seen': 'Last seen',
    open: 'Open', download: 'Download all', workflow: 'Workflow', again: 'Run again', more: 'Show more', 'no.workflow': 'The job has no workflow that can be saved',
    throughput: 'Jobs per 15 minutes', waits: 'Wait for an instance', use: 'GPUs at work', switches: 'Model switches in five minutes', 'switches.saved': 'saved', 'switches.made': 'made', done: 'done', 'job.failed': 'failed', cancelled: 'cancelled', lostruns: 'lost runs', p50: 'p50', p95: 'p95',
    'kind.lost': 'lost run', 'kind.failed': 'failed job', 'kind.sick': 'instance', 'kind.refused': 'refused prompt', time: 'Time', skip: 'keys: ↑ ↓ move between rows, Enter opens, Alt+↑ ↓ reorder, Delete cancels',
    bulk: 'bulk', interactive: 'interactive', drag: 'Drag to reorder', ago: '{x} ago', details: 'Details', 'own.only': 'Mine',
    spare: 'Machines by need', machines: '{n} of {x} machines', starting: '{n} starting', leaving: '{n} leaving', serverless: 'serverless, {n} running', spent: '{n} today', 'spent.of': '{n} of {x} today',
    'success': 'done', 'error': 'failed', completed: 'done',
    'n.busy': { other: '{n} busy' }, 'n.idle': { other: '{n} idle' }, 'n.foreign': { other: '{n} in use by others' }, 'n.draining': { other: '{n} draining' }, 'n.sick': { other: '{n} unhealthy' }, 'n.offline': { other: '{n} offline' }, 'n.files': { one: '{n} file', other: '{n} files' },
  },
  ru: {
    fleet: 'Серверы', queue: 'Очередь', results: 'Результаты', trends: 'Динамика', faults: 'Сбои',
    jobs: 'Задания', took: 'Длилось', 'band.any': 'любой класс', normal: 'обычное', log: 'Что писал {x} в это время', 'no.log': 'Сервер не подключён или уже не хранит журнал за это время.', ever: 'за всё время', 'last.hour': 'за час', 'last.day': 'за сутки', 'last.week': 'за неделю',
    'state.queued': 'ждёт', 'state.running': 'выполняется', 'state.done': 'готово', 'state.failed': 'ошибка', 'state.cancelled': 'отменено',
    'find.text': 'Номер, ошибка, пользователь, сервер', 'find.tenant': 'Пользователь', 'find.instance': 'Сервер', looking: 'Поиск…', 'found.all': 'Найдено: {n}', 'found.more': 'Среди первых {looked} найдено {n}, могут быть ещё',
    'no.jobs.yet': 'Заданий пока нет', 'no.found': 'Ничего не найдено', 'no.found.help': 'Задания, отменённые во время ожидания, и самые старые завершённые не хранятся.', 'cancel.found': 'Отменить найденные…', 'again.found': 'Повторить найденные…',
    'ask.runs': 'Текущие задания (серверов: {n}) начнутся заново на других.', 'ask.cancel.found': 'Отменить задания, которые ждут или выполняются ({n})? Пришедшие позже останутся.', 'ask.again.found': 'Запустить ещё раз завершённые задания ({n})?', 'did.cancel.found': 'Отменено заданий: {n}', 'did.again.found': 'Отправлено ещё раз: {n}', 'failed.some': 'Не получилось: {n}, причина первого: {x}',
    'no.match.queue': 'На этой странице только начало очереди.', 'search.all': 'Искать среди всех заданий', 'page.of': 'Всё об этом задании', 'no.job': 'Такого задания нет', 'no.job.help': 'Возможно, его отменили во время ожидания или оно завершилось так давно, что уже не хранится.',
    set: 'Задать', 'did.priority': 'Приоритет изменён', 'why.there': 'Почему там', progress: 'Выполнено', began: 'Начато', ended: 'Завершено', waited: 'Ждало', 'copy': 'Скопировать номер', 'did.copy': 'Скопировано', 'id.hub': 'Номер у хаба', 'id.instance': 'Номер у сервера', 'error.of': 'Ошибка', 'failed.at': 'Не удалось на', messages: 'Сообщения', 'time.goes': 'На что уходит время', 'time.of': 'В среднем за запуск (запусков: {n})', saves: 'Экономит {x}.', 'hint.hide': 'Больше не показывать', 'hint.open': 'Открыть', 'did.dismiss': 'Больше не показывается', 'hint.hidden': 'Скрытые советы: нажмите, чтобы совет снова показывался.', 'did.restore': 'Снова показывается', 'hint.reserve_models': 'выделить сервер', 'hint.fewer_steps': 'меньше шагов', 'hint.needs_no_gpu': 'GPU не нужен', 'hint.same_prompt': 'уже сделано', 'hint.downloads': 'скачивания', 'hint.unseen_preview': 'превью, которые никто не открывает', tip: 'Совет',
    'phase.downloading': 'скачивание', 'phase.loading': 'загрузка моделей', 'phase.encoding': 'разбор текстов и картинок', 'phase.sampling': 'сэмплирование', 'phase.decoding': 'декодирование', 'phase.upscaling': 'увеличение', 'phase.saving': 'сохранение', 'phase.service': 'ожидание чужого сервиса', 'phase.other': '', outputs: 'Файлы', graph: 'Граф', 'save.graph': 'Сохранить граф', away: 'Нет связи. Данные на {x}',
    idle: 'свободен', busy: 'работает', foreign: 'занят другими', draining: 'выводится', sick: 'неисправен', offline: 'не в сети',
    instances: 'Серверы', running: 'Выполняются', waiting: 'Ждут', own: 'ваших', all: 'Все', 'gpu.use': 'Загрузка GPU',
    search: 'Имя, GPU, модель, пользователь', 'search.jobs': 'Номер задания или пользователь',
    instance: 'Сервер', state: 'Состояние', work: 'Работа', model: 'Модель', memory: 'Видеопамять', up: 'Аптайм', job: 'Задание', why: 'Почему ждёт', eta: 'Готово через', place: 'Место', user: 'Пользователь', wait: 'Время', status: 'Состояние', actions: 'Действия',
    someone: 'задание другого пользователя', node: 'узел', preparing: 'подготовка', 'not.loaded': 'не загружена', free: 'свободно', of: 'из',
    'panel.soon': 'Вот-вот начнётся', 'panel.begins': 'Начнётся в', 'panel.ends': 'будет готово в', 'panel.unknown': 'Пока неизвестно, сколько это займёт', 'panel.none': 'Ни одно ваше задание не выполняется и не ждёт.', 'panel.away': 'Хаб не отвечает. Страница спросит ещё раз.', 'panel.limits': 'Ваши лимиты', 'panel.open': 'Открыть панель хаба',
    'panel.limit.running': 'Одновременно: {n} из {x}', 'panel.limit.waiting': 'Ждут: {n} из {x}', 'panel.limit.gpu': 'Время GPU за сутки: {n} из {x}', 'panel.limit.rate': 'Не больше {x} заданий в минуту',
    turn: 'ждёт своей очереди', paused: 'приостановлено', 'queue.paused': 'очередь приостановлена', 'you.paused': 'ваши задания приостановил администратор',
    'webui.folder': 'Страница ComfyUI берётся из папки', 'webui.instance': 'Страницу ComfyUI отдаёт', 'webui.nowhere': 'Страницу ComfyUI сейчас никто не отдаёт; её мог бы отдать', 'webui.none': 'Страницу ComfyUI сейчас никто не отдаёт: нет на связи сервера, которому это разрешено.',
    strangers: 'Redis и хранилище принадлежат разным хабам: ничего не удаляется. Что делать, скажет `comfyhub check`.',
    'open.hub': 'Хаб не спрашивает ни логина, ни ключа: любой, кто достанет до него по сети, может им пользоваться, видеть и удалять всё. Изменить это может администратор.',
    'operators.only': 'Этот сайт — для администраторов, а вы вошли не как администратор. Их перечисляет Caddyfile: `operators ИМЯ`, а вход нужен на обоих сайтах. Общая панель — по адресу /hub/ самого хаба, обычно на порту 8188.',
    'operators.at': 'Управлять хабом можно на отдельном сайте администратора:', 'operators.none': 'Управлять хабом можно только на отдельном сайте администратора, а его пока нет: добавьте `comfyhub_operators` в Caddyfile.',
    connected: 'На связи', lost: 'Переподключение…', unreachable: 'Хаб не отвечает', theme: 'Цвета', 'theme.auto': 'как в системе', 'theme.light': 'светлые', 'theme.dark': 'тёмные', language: 'Язык',
    close: 'Закрыть', cancel: 'Отменить', pause: 'Приостановить', resume: 'Возобновить', front: 'В начало', end: 'В конец', moveup: 'Поднять', movedown: 'Опустить',
    drain: 'Вывести', trust: 'Вернуть в работу', restart: 'Перезапустить', forget: 'Забыть', 'pause.all': 'Приостановить очередь', 'resume.all': 'Возобновить очередь',
    started: 'Запущен', 'did.cancel': 'Задание отменено', 'did.pause': 'Приостановлено', 'did.resume': 'Возобновлено', 'did.move': 'Перемещено', 'did.drain': 'Сервер закончит текущее задание и новых не получит', 'did.restart': 'Сервер перезапускается', 'did.forget': 'Сервер убран из списка', 'did.again': 'Задание отправлено ещё раз',
    failed: 'Не получилось', 'ask.cancel': 'Отменить это задание?', 'ask.restart': 'Перезапустить сервер? Текущее задание выполнится на другом.',
    'no.instances': 'Серверы ещё не подключены', 'no.instances.help': 'На машине с GPU запустите рядом с ComfyUI агент, он сам его найдёт:', 'no.instances.here': 'Запустите на этой машине рядом с ComfyUI агент, он сам его найдёт:', 'no.instances.key': 'Ключ тот же, с которым запущен хаб.', 'no.instances.more': 'Для других машин запустите хаб с COMFYHUB_GOSSIP=0.0.0.0:7946 и COMFYHUB_GOSSIP_KEY.', 'no.instances.found': 'Агент ищет ComfyUI на обычных портах; другой адрес задаёт --comfyui URL.', 'no.instances.yours': 'Их подключает администратор хаба.', 'no.gossip': 'Этот хаб не принимает агентов: перечислите серверы в его Caddyfile.', 'no.jobs': 'Очередь пуста', 'no.jobs.help': 'Укажите этот адрес клиенту ComfyUI или отправьте задание из командной строки:',
    'no.match': 'Ничего не найдено', 'no.results': 'Результатов пока нет', 'no.results.help': 'Готовые картинки появятся здесь сразу после выполнения.', 'no.faults': 'За последние сутки сбоев не было', 'search.faults': 'Причина, сервер, пользователь', 'no.trends': 'Первые данные появятся через несколько секунд работы',
    'more.waiting': 'и ещё {n}', reason: 'Причина', fault: 'Последняя ошибка', version: 'Версия', address: 'Адрес', agent: 'Агент', kind: 'Тип', reserved: 'Только для', elapsed: 'Выполняется', preview: 'Предпросмотр', 'no.preview': 'Предпросмотра пока нет', priority: 'Приоритет', band: 'Класс', attempts: 'Попытки', created: 'Отправлено', why2: 'Что говорит за и против каждого сервера', load: 'Посторонняя нагрузка', restarts: 'Перезапуски', 'restart.at': 'следующий в {x}', 'restart.failed': 'последний не удался: {x}', disk: 'Диск', 'disk.low': 'на диске осталось {x} ГБ', 'others.hold': 'другие программы занимают {x} ГБ', 'others.use': 'другие программы загружают на {x} %', 'last.seen': 'Был в сети',
    open: 'Открыть', download: 'Скачать всё', workflow: 'Схема', again: 'Повторить', more: 'Показать ещё', 'no.workflow': 'У задания нет схемы, которую можно сохранить',
    throughput: 'Заданий за 15 минут', waits: 'Ожидание сервера', use: 'Загрузка GPU', switches: 'Смены моделей за пять минут', 'switches.saved': 'избежали', 'switches.made': 'было', done: 'готово', 'job.failed': 'с ошибкой', cancelled: 'отменено', lostruns: 'потеряно запусков', p50: 'половина — не дольше', p95: '95 % — не дольше',
    'kind.lost': 'потерян запуск', 'kind.failed': 'ошибка задания', 'kind.sick': 'сервер', 'kind.refused': 'отклонён запрос', time: 'Время', skip: 'клавиши: ↑ ↓ — по строкам, Enter — подробнее, Alt+↑ ↓ — переставить, Delete — отменить',
    bulk: 'фоновое', interactive: 'срочное', drag: 'Перетащите, чтобы переставить', ago: '{x} назад', details: 'Подробности', 'own.only': 'Мои',
    spare: 'Серверы по мере надобности', machines: '{n} из {x} серверов', starting: 'запускается: {n}', leaving: 'выводится: {n}', serverless: 'serverless, выполняется: {n}', spent: 'за сутки {n}', 'spent.of': 'за сутки {n} из {x}',
    'success': 'готово', 'error': 'ошибка', completed: 'готово',
    'n.busy': { one: '{n} работает', other: '{n} работают' }, 'n.idle': { one: '{n} свободен', other: '{n} свободны' }, 'n.foreign': { one: '{n} занят другими', other: '{n} заняты другими' }, 'n.draining': { one: '{n} выводится', other: '{n} выводятся' }, 'n.sick': { one: '{n} неисправен', other: '{n} неисправны' }, 'n.offline': { other: '{n} не в сети' }, 'n.files': { one: '{n} файл', few: '{n} файла', many: '{n} файлов', other: '{n} файла' },
  },
};
export const units = {
  en: { ms: 'ms', s: 's', m: 'min', h: 'h', d: 'd' },
  ru: { ms: 'мс', s: 'с', m: 'мин', h: 'ч', d: 'дн' },
};

export const languages = { en: 'English', ru: 'Русский' };
export let language = remembered('language') ?? (navigator.languages ?? [navigator.language]).map((name) => name.slice(0, 2)).find((name) => words[name]) ?? 'en';
if (!words[language]) language = 'en';
let plural = new Intl.PluralRules(language);
let number = new Intl.NumberFormat(language, { maximumFractionDigits: 0 });

// speak changes the language of all texts.
export function speak(name) {
  language = words[name] ? name : 'en';
  plural = new Intl.PluralRules(language);
  number = new Intl.NumberFormat(language, { maximumFractionDigits: 0 });
}

// remembered reads what was chosen in this browser before; one that keeps nothing is fine.
export function remembered(name) {
  try { return localStorage.getItem(`comfyhub.${name}`); } catch { return null; }
}

export function remember(name, value) {
  try { localStorage.setItem(`comfyhub.${name}`, value); } catch { /* it is chosen again next time */ }
}

// t is a text in the language of the page.
export function t(name, values = {}) {
  const text = words[language][name] ?? words.en[name] ?? name;
  return text.replace(/\{(\w+)\}/g, (_, key) => values[key] ?? '');
}

// count is a number with its noun in the right form.
export function count(name, n) {
  const forms = words[language][name];
  return (forms[plural.select(n)] ?? forms.other).replace('{n}', number.format(n));
}

export function num(n, digits = 0) { return digits ? n.toLocaleString(language, { maximumFractionDigits: digits }) : number.format(n); }
export function percent(part) { return `${num(Math.round(part * 100))} %`; }

// span is a time in at most two units, such as 3 min 5 s.
export function span(ms) {
  const u = units[language];
  const all = Math.max(0, Math.round(ms / 1000));
  const two = (a, x, b, y) => (y ? `${a} ${x} ${y} ${b}` : `${a} ${x}`);
  if (all < 60) return `${all} ${u.s}`;
  if (all < 3600) return two(Math.floor(all / 60), u.m, u.s, all % 60);
  if (all < 86400) return two(Math.floor(all / 3600), u.h, u.m, Math.floor((all % 3600) / 60));
  return two(Math.floor(all / 86400), u.d, u.h, Math.floor((all % 86400) / 3600));
}

// short is a time in one unit.
export function short(seconds) {
  const u = units[language];
  if (seconds < 10) return `${num(seconds, 1)} ${u.s}`;
  if (seconds < 90) return `${Math.round(seconds)} ${u.s}`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} ${u.m}`;
  return `${num(seconds / 3600, 1)} ${u.h}`;
}

// gpuName is a device as ComfyUI names it, without what PyTorch adds: "cuda:0 NVIDIA X : cudaMallocAsync".
export function gpuName(device) { return device.replace(/^\w+:\d+ /, '').replace(/ : \w+$/, ''); }

// modelNames are model files without folders and endings.
export function modelNames(models) { return models.split(', ').map((name) => name.replace(/^.*[/\\]/, '').replace(/\.(safetensors|ckpt|pt|pth|gguf|sft)$/i, '')).join(', '); }

export function gigabytes(bytes) { return num(bytes / 2 ** 30, bytes < 100 * 2 ** 30 ? 1 : 0); }
export function clock(ms) { return new Date(ms).toLocaleTimeString(language, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' }); }
export function time(ms) { return new Date(ms).toLocaleTimeString(language, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' }); }
export function moment(ms) { return new Date(ms).toLocaleString(language, { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' }); }

// say tells everybody who sees or hears the page.
export function say(what, bad = false) {
  document.getElementById('live').textContent = what;
  const toast = h(bad ? 'div.toast.bad' : 'div.toast', {}, what);
  const all = document.getElementById('toasts');
  all.append(toast);
  while (all.children.length > 4) all.firstChild.remove();
  setTimeout(() => toast.remove(), bad ? 8000 : 3500);
}
