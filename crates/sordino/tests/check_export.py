# Trains models with the command `sordino` and compares them with transformers and peft.
#
#   python crates/sordino/tests/check_export.py target/debug/sordino [FOLDER]
#
# .ci/run creates the environment. For every kind of model and every trained part, the exported folder must load without missing or unexpected
# weights, and transformers must give the probabilities that `sordino predict` prints. This checks the tokens, the normalisation of images,
# the pre-trained weights and the exported weights. The models are small and have random weights. FOLDER is a BERT model for sentence embeddings, such as
# all-MiniLM-L6-v2, which is checked as well.
import csv
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy
import torch
import transformers as hf
from peft import PeftModel
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

BINARY = sys.argv[1]
PARTS = ("head", "last,layers=1", "lora,rank=2", "all")
WORDS = "good bad film plot fine dull long short".split()
# The special tokens of each kind. Token 1 is the padding of RoBERTa, and token 0 that of GPT-2; neither may occur in a text.
SPECIAL = {
    "bert": ("[CLS]", "[PAD]", "[SEP]", "[UNK]"),
    "roberta": ("<s>", "<pad>", "</s>", "<unk>"),
    "distilbert": ("[CLS]", "[PAD]", "[SEP]", "[UNK]"),
    "gpt2": ("<|endoftext|>", "<unk>"),
}
warnings.simplefilter("ignore")  # transformers and peft warn about changes in later versions
hf.logging.set_verbosity_error()
hf.utils.logging.disable_progress_bar()


def sordino(*arguments):
    done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def random_model(kind):
    encoder = dict(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12, num_labels=2)
    text = dict(vocab_size=24, max_position_embeddings=20)
    if kind == "bert":
        return hf.BertForSequenceClassification(hf.BertConfig(**encoder, **text))
    if kind == "roberta":
        return hf.RobertaForSequenceClassification(hf.RobertaConfig(**encoder, **text))
    if kind == "distilbert":
        config = hf.DistilBertConfig(dim=8, n_layers=2, n_heads=2, hidden_dim=12, num_labels=2, **text)
        return hf.DistilBertForSequenceClassification(config)
    if kind == "gpt2":
        return hf.GPT2ForSequenceClassification(
            hf.GPT2Config(vocab_size=24, n_positions=20, n_embd=8, n_layer=2, n_head=2, pad_token_id=0, num_labels=2)
        )
    return hf.ViTForImageClassification(hf.ViTConfig(**encoder, image_size=8, patch_size=4))


def write_model(kind, folder):
    model = random_model(kind)
    for name, p in model.named_parameters():
        norm = ("norm" in name.lower() or ".ln_" in name) and name.endswith("weight")
        p.data = torch.randn(p.shape) * (0.3 if p.dim() < 2 else 0.5) + (1 if norm else 0)
    model.save_pretrained(folder)
    if kind == "vit":
        return
    special = SPECIAL[kind]
    ids = {name: number for number, name in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=special[-1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(list(special))
    if kind != "gpt2":
        begin, _, end, _ = special
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A {end}", special_tokens=[(begin, ids[begin]), (end, ids[end])]
        )
    tokenizer.save(str(folder / "tokenizer.json"))


def write_data(kind, folder):
    """Records of two classes, and records to predict; returns their paths."""
    random = numpy.random.default_rng(1)
    folder.mkdir()
    if kind == "vit":
        images = random.random((200, 3, 8, 8), dtype=numpy.float32)
        numpy.savez(folder / "train.npz", x=images, y=(images[:, 0].mean((1, 2)) > 0.5).astype("int64"))
        numpy.save(folder / "new.npy", images[:6])
        return folder / "train.npz", folder / "new.npy"
    text = lambda: " ".join(random.choice(WORDS + ["unheard"], random.integers(1, 9)))
    (folder / "train").mkdir()
    for name in ("a", "b"):
        (folder / "train" / f"{name}.txt").write_text("".join(f"{name} {text()}\n" for _ in range(100)))
    new = folder / "new.txt"
    new.write_text("".join(text() + "\n" for _ in range(6)))
    return folder / "train", new


def truth(kind, model, new, folder):
    """The probabilities that transformers computes, one record at a time."""
    model.eval()
    if kind == "vit":
        pixels = torch.tensor(numpy.load(new))
        return model(pixel_values=(pixels - 0.5) / 0.5).logits.softmax(1)
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    rows = []
    for text in new.read_text().splitlines():
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        types = {"token_type_ids": torch.zeros_like(ids)} if kind == "bert" else {}
        rows.append(model(input_ids=ids, attention_mask=torch.ones_like(ids), **types).logits.softmax(1))
    return torch.cat(rows)


def load(kind, folder):
    auto = hf.AutoModelForImageClassification if kind == "vit" else hf.AutoModelForSequenceClassification
    model, info = auto.from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return model


def load_with_adapter(model, adapter):
    """Loads the adapters of a folder into the model. They have the layer names of transformers 5; for earlier versions, those of ViT are renamed."""
    if model.config.model_type == "vit" and int(hf.__version__.split(".")[0]) < 5:
        old = lambda name: name.replace("vit.layers", "vit.encoder.layer").replace("q_proj", "attention.query").replace("v_proj", "attention.value")
        weights, config = adapter / "adapter_model.safetensors", adapter / "adapter_config.json"
        save_file({old(name): values for name, values in load_file(weights).items()}, weights)
        config.write_text(config.read_text().replace("q_proj", "query").replace("v_proj", "value"))
    return PeftModel.from_pretrained(model, adapter)


def check(kind, part, folder, data, new):
    """Trains a part of the model and compares it; returns the number of tensors that were trained."""
    model, run, merged, adapter = (folder / name for name in ("model", f"run-{part}", f"merged-{part}", f"adapter-{part}"))
    image = ["--classes", 2] if kind == "vit" else []
    # Without test records there is no temperature, which an exported model does not have.
    sordino("train", "--data", data, *image, "--model", model, "--train", part, "--steps", 8, "--seed", 1, "--test-fraction", 0, "--out", run)
    rows = list(csv.DictReader(io.StringIO(sordino("predict", "--run", run, "--data", new))))
    names = [name for name in rows[0] if name.startswith("probability_")]
    ours = torch.tensor([[float(row[name]) for name in names] for row in rows])

    sordino("export", run, "--out", merged)
    before, after = load_file(model / "model.safetensors"), load_file(merged / "model.safetensors")
    assert before.keys() == after.keys()
    changed = sum(not torch.equal(before[name], after[name]) for name in before)
    found = [(truth(kind, load(kind, merged), new, model) - ours).abs().max().item()]
    if part.startswith("lora"):
        sordino("export", run, "--out", adapter, "--adapter")
        found.append((truth(kind, load_with_adapter(load(kind, model), adapter), new, model) - ours).abs().max().item())
    print(f"{kind} {part}: {changed} of {len(before)} tensors changed, largest difference {max(found):.1e}")
    assert max(found) < 1e-5
    assert ours.std(0).min() > 1e-3, "all records have the same probabilities"
    return changed


def check_language_model(part, folder):
    """Compares the loss on the test records of a language model in the format of E2E."""
    data, model = folder / "e2e", folder / "model"
    if not data.exists():
        data.mkdir()
        random = numpy.random.default_rng(2)
        text = lambda: " ".join(random.choice(WORDS, random.integers(1, 7)))
        for name, count in (("trainset", 100), ("devset", 20)):
            rows = "".join(f"{text()},{text()}\n" for _ in range(count))
            (data / f"{name}.csv").write_text("mr,ref\n" + rows)
    run, merged, adapter = (folder / f"language-{name}-{part}" for name in ("run", "merged", "adapter"))
    sordino("train", "--data", data, "--model", model, "--train", part, "--steps", 8, "--seed", 1, "--out", run)
    ours = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["test_token_loss"]
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))

    def difference(model):
        losses = []
        for row in csv.DictReader((data / "devset.csv").open()):
            prompt, text = (tokenizer.encode(row[name]).ids + [0] for name in ("mr", "ref"))
            ids = torch.tensor([prompt + text])
            losses.append(model.eval()(input_ids=ids, labels=torch.tensor([[-100] * len(prompt) + text])).loss)
        return (torch.stack(losses).mean() - ours).abs().item()

    sordino("export", run, "--out", merged)
    tuned = hf.AutoModelForCausalLM.from_pretrained(merged)
    found = [difference(tuned)]
    written = [row["prediction"] for row in csv.DictReader(io.StringIO(sordino("predict", "--run", run, "--data", data)))]
    for row, text in zip(csv.DictReader((data / "devset.csv").open()), written, strict=True):
        prompt = tokenizer.encode(row["mr"]).ids + [0]
        out = tuned.generate(torch.tensor([prompt]), do_sample=False, max_length=20, eos_token_id=0, pad_token_id=0)
        assert text == tokenizer.decode(out[0, len(prompt):].tolist()), (row, text)
    if part.startswith("lora"):
        sordino("export", run, "--out", adapter, "--adapter")
        found.append(difference(load_with_adapter(hf.AutoModelForCausalLM.from_pretrained(model), adapter)))
    print(f"gpt2 as a language model, {part}: loss {ours:.4f}, largest difference {max(found):.1e}")
    assert max(found) < 1e-5


def check_sentences(model, folder):
    """Compares a tuned sentence encoder, whose head is a linear layer on the mean over its tokens."""
    data, new = write_data("bert", folder / "data")
    run, merged = folder / "run", folder / "merged"
    new.write_text("A gripping film, from the first scene to the last.\nno\n" + "It makes no sense. " * 60 + "\n1234 !? déjà vu 東京\n")
    sordino("train", "--data", data, "--model", model, "--train", "last,layers=2", "--steps", 4, "--seed", 1, "--test-fraction", 0, "--out", run)
    rows = list(csv.DictReader(io.StringIO(sordino("predict", "--run", run, "--data", new))))
    ours = torch.tensor([[float(row[name]) for name in ("probability_a", "probability_b")] for row in rows])
    sordino("export", run, "--out", merged)
    model, info = hf.AutoModel.from_pretrained(merged, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    tokenizer, head = hf.AutoTokenizer.from_pretrained(merged), load_file(merged / "head.safetensors")
    rows = []
    for text in new.read_text().splitlines():
        ids = torch.tensor([tokenizer(text, truncation=True, max_length=256)["input_ids"]])
        mean = model.eval()(input_ids=ids).last_hidden_state[0].mean(0)
        rows.append((head["head.weight"] @ mean + head["head.bias"]).softmax(0))
    difference = (torch.stack(rows) - ours).abs().max().item()
    print(f"sentence encoder: largest difference {difference:.1e}")
    assert difference < 1e-5


with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
    torch.manual_seed(1)
    for kind in (*SPECIAL, "vit"):
        place = pathlib.Path(folder) / kind
        place.mkdir()
        write_model(kind, place / "model")
        data = write_data(kind, place / "data")
        head, last, lora, whole = (check(kind, part, place, *data) for part in PARTS)
        assert 0 < head < last < whole and head < lora < whole
    for part in PARTS[1:]:
        check_language_model(part, pathlib.Path(folder) / "gpt2")
    if len(sys.argv) > 2:
        place = pathlib.Path(folder) / "sentences"
        place.mkdir()
        check_sentences(pathlib.Path(sys.argv[2]), place)
