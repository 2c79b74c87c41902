"""Minimal chat templates, one for each structural property, and small tokenizers to count their renderings with."""

from __future__ import annotations

from typing import Any

GENERATION = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
BODY = "{{ '<|im_start|>' + m['role'] + '\n' + (m['content'] or '') + '<|im_end|>\n' }}"
CALLS = "{% for c in m.tool_calls or [] %}{{ '<tool_call>' + (c.function | tojson) + '</tool_call>' }}{% endfor %}"
ONE_TURN = "{{ '<|im_start|>' + m['role'] + '\n' + (m['content'] or '') }}" + CALLS + "{{ '<|im_end|>\n' }}"

TEMPLATES: dict[str, str] = {
    # Every message alike: counts may be added.
    "additive": "{% for m in messages %}" + ONE_TURN + "{% endfor %}" + GENERATION,
    # Tools in a block of their own before everything: still additive.
    "tools_first": "{% if tools %}{{ '<|im_start|>tools\n' + (tools | tojson) + '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}" + ONE_TURN + "{% endfor %}" + GENERATION,
    # Tools inside the first user turn.
    "tools_in_first_user": "{% set ns = namespace(done=false) %}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if tools and m['role'] == 'user' and not ns.done %}{% set ns.done = true %}{{ (tools | tojson) + '\n' }}{% endif %}"
    "{{ (m['content'] or '') }}" + CALLS + "{{ '<|im_end|>\n' }}{% endfor %}" + GENERATION,
    # A default system message where there is none.
    "default_system": "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}" + ONE_TURN + "{% endfor %}" + GENERATION,
    # System text is hoisted to the front by the template itself.
    "hoists_system": "{{ bos_token }}{% for m in messages if m['role'] == 'system' %}{{ m['content'] + '\n' }}{% endfor %}"
    "{% for m in messages if m['role'] != 'system' %}" + BODY + "{% endfor %}" + GENERATION,
    # Old thinking disappears when a new user turn arrives: not prefix-stable.
    "strips_thinking": "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m['role'] == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% set c = m['content'] or '' %}"
    "{% if m['role'] == 'assistant' and '</think>' in c and loop.index0 < ns.last %}{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + c + '<|im_end|>\n' }}{% endfor %}" + GENERATION,
    # Neighbours of one role become one turn.
    "merges_roles": "{% set ns = namespace(role='') %}{% for m in messages %}{% if m['role'] == ns.role %}{{ '\n\n' + (m['content'] or '') }}"
    "{% else %}{% if ns.role %}{{ '<|im_end|>\n' }}{% endif %}{{ '<|im_start|>' + m['role'] + '\n' + (m['content'] or '') }}{% endif %}"
    "{% set ns.role = m['role'] %}{% endfor %}{{ '<|im_end|>\n' }}" + GENERATION,
    # User and assistant must take turns; a system message may open.
    "demands_alternation": "{{ bos_token }}{% set ns = namespace(n=0) %}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{% if not loop.first %}{{ raise_exception('system must be first') }}{% endif %}{{ m['content'] + '\n\n' }}{% else %}"
    "{% if (m['role'] == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('roles must alternate user/assistant') }}{% endif %}{% set ns.n = ns.n + 1 %}"
    "{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% else %}{{ ' ' + (m['content'] or '') + eos_token }}{% endif %}{% endif %}{% endfor %}",
    # The same without the messages of tools: a question behind results stands behind the question before them.
    "alternates_without_tools": "{{ bos_token }}{% set ns = namespace(n=0) %}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{% if not loop.first %}{{ raise_exception('system must be first') }}{% endif %}{{ m['content'] + '\n\n' }}"
    "{% elif m['role'] == 'tool' %}{{ '<tool_response>' + m['content'] + '</tool_response>' }}{% elif m.tool_calls %}"
    + CALLS
    + "{% else %}{% if (m['role'] == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('roles must alternate user/assistant') }}{% endif %}{% set ns.n = ns.n + 1 %}"
    "{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% else %}{{ ' ' + (m['content'] or '') + eos_token }}{% endif %}{% endif %}{% endfor %}",
    # No system role at all, and turns must alternate.
    "refuses_system": "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\n' + (m['content'] | trim) + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
    # The generation prompt opens a thought that the finished turn does not have: it is no prefix of what comes next.
    "generation_no_prefix": "{% for m in messages %}" + ONE_TURN + "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}",
    # What was said last is said again at the front: nothing of the prefix stays.
    "prefix_unstable": "{{ '<|im_start|>turns ' + (messages | length | string) + '<|im_end|>\n' }}{% for m in messages %}"
    + BODY
    + "{% endfor %}"
    + GENERATION,
    # Of several system messages the last one is rendered, wherever it is.
    "last_system": "{% set ns = namespace(system='') %}{% for m in messages %}{% if m['role'] == 'system' %}{% set ns.system = m['content'] %}{% endif %}{% endfor %}"
    "{{ bos_token + ns.system }}{% for m in messages if m['role'] != 'system' %}"
    + BODY
    + "{% endfor %}"
    + GENERATION,
    # No special token between messages, so tokens may span them.
    "no_special_joints": "{% for m in messages %}{{ m['role'] + ': ' + (m['content'] or '') + '\n' }}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}",
    # Content is read as blocks.
    "reads_blocks": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for b in m['content'] or [] %}{{ b['text'] if b['type'] == 'text' else '<image>' }}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    + GENERATION,
    # Of a system message made of blocks the first one alone is shown; turns must alternate.
    "first_block_of_system": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set c = messages[0]['content'] %}"
    "{% set opening = (c if c is string else c[0]['text']) + '\n\n' %}{% set rest = messages[1:] %}"
    "{% else %}{% set opening = '' %}{% set rest = messages %}{% endif %}{% for m in rest %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\n' + (opening if loop.first else '') }}"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for b in m['content'] or [] %}{{ b['text'] if b['type'] == 'text' else '<image>' }}{% endfor %}{% endif %}"
    "{{ '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
}
ADDITIVE = {"additive", "tools_first", "generation_no_prefix", "reads_blocks"}
SPECIALS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>", "<image>"]
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}
_CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's 12:30, isn't it?",
    'def main() -> None:\n    print({"a": 1, "b": [2, 3]})\n',
    "user assistant system tool weather Rome sunny warm thanks one two three four five",
    "Bonjour, ça va? Größe, naïve, 中文 字 日本語 العربية",
    "<think>\nlet me see\n</think>\n\n be brief, be kind. {'type': 'function', 'name': 'weather'}",
]


def byte_level_tokenizer(vocabulary: int = 420) -> Any:
    """Returns a small tokenizer like those of Qwen and Llama 3: byte-level pairs, special tokens, nothing added."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIALS],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS * 4, trainer)
    return tokenizer


def sentence_tokenizer(vocabulary: int = 420) -> Any:
    """Returns a small tokenizer like those of Llama 2 and Mistral: a mark for each space, also before the first word of a text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = [AddedToken(token, special=True, normalized=False) for token in ["<unk>", *SPECIALS]]
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary + 256, special_tokens=[*special, *fallback], show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS * 4, trainer)
    return tokenizer
